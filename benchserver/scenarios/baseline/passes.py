"""One sequence of the baseline under way: once cold, once warm, every byte proven.

*cold*: LOOKUP must miss all, every writing rank STOREs everything.  *warm*: LOOKUP again, with a
fresh request id each time, until the store is visible or `visible_within` ends; poison, RETRIEVE
on every reading rank into other blocks, verify, compare digests.  With `expect_warm` the cold
pass must hit everything and is the one that is retrieved and verified.

Some sequences carry probes (`plan` says which): a source that is overwritten as soon as STORE is
acknowledged; a RETRIEVE that skips the first tokens; LOOKUPs under another salt and model name, and
of a shorter range.

All that is known of a sequence while it runs lies in one `Passes`: any number may be under way, as
long as their blocks differ.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from benchserver.check.dropped import DroppedAccount
from benchserver.client.keys import KeyMaker
from benchserver.client.lookups import OpenRequest, next_poll_ns
from benchserver.client.worker import Worker
from benchserver.clock import NS_PER_S
from benchserver.errors import FatalError
from benchserver.history import (
    CallRecord,
    DroppedRecord,
    LookupRecord,
    Outcome,
    SequenceRecord,
    Step,
    TransferRecord,
    sequence_label,
)
from benchserver.kv.blocks import Window
from benchserver.kv.owners import Candidate
from benchserver.kv.pool import shares
from benchserver.load.partial import skip_tokens
from benchserver.scenarios import requests
from benchserver.scenarios.baseline.config import BaselineConfig
from benchserver.scenarios.baseline.plan import (
    OTHER_TENANTS,
    REUSED_SOURCE,
    SHORTER_RANGE,
    SKIPPED_TOKENS,
    Pass,
)
from benchserver.scenarios.proof import Prover, SequencePlan
from benchserver.stage.stage import Crew, Stage
from benchserver.tasks import gather_all, in_thread

_THREADS_OF_ONE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all sequences of a client share.

    `past` are the last ones of all clients, for tracing wrong pages.  With `tells_at_once`, steps
    are told as they end: no other sequence's lines come between them.
    """

    stage: Stage
    crew: Crew
    config: BaselineConfig
    prover: Prover
    past: deque[Candidate]
    account: DroppedAccount
    tells_at_once: bool = True


class Passes:
    """One sequence; call `run` once."""

    def __init__(self, setting: Setting, work: SequencePlan) -> None:
        self._stage = setting.stage
        self._crew = setting.crew
        self._config = setting.config
        self._prover = setting.prover
        self._past = setting.past
        self._account = setting.account
        self._tells_at_once = setting.tells_at_once
        self._work = work
        self._label = sequence_label(work.seq, work.aside)
        self._chunks = self._crew.geometry.chunks
        # Several workers divide the cores among them; a single one is divided.
        workers = sum(len(crew.workers) for crew in setting.stage.crews)
        self._shares = shares(_THREADS_OF_ONE if workers == 1 else 1)
        self._steps: list[Step] = []
        self._stored_ns = 0
        self._overwriting: list[asyncio.Future[None]] = []

    async def run(self) -> tuple[SequenceRecord, FatalError | None]:
        """Run to the end, or to the point where it could not go on, which the error names."""
        clock, work = self._stage.clock, self._work
        self._past.append(Candidate(label=self._label.replace("=", " "), digests=work.digests))
        began_ns = clock.now_ns()
        fatal: FatalError | None = None
        try:
            await self._both_passes()
        except FatalError as error:
            fatal = error
        record = SequenceRecord(
            seq=work.seq,
            expect_warm=self._config.expect_warm,
            cross_check=self._crew.cross_check,
            probes=work.probes,
            overwritten=work.overwritten,
            writers=self._crew.engine.writers,
            readers=tuple(worker.rank for worker in self._crew.workers),
            steps=tuple(self._steps),
            began_ns=began_ns,
            ended_ns=clock.now_ns(),
            aside=work.aside,
        )
        if fatal is None:
            await self._overwritten()  # the next sequence may have the same blocks
        return record, fatal

    async def _both_passes(self) -> None:
        if self._config.expect_warm:
            request = self._open("cold")
            step = await self._look_up(request, Pass.COLD, expected=self._chunks)
            await self._retrieve_if_hit(request, step)
        elif await self._cold():
            await self._warm()

    def _record(self, step: Step) -> None:
        self._steps.append(step)
        if self._tells_at_once:
            self._stage.emit(self._label, step)

    async def _answered(self, steps: Iterable[CallRecord]) -> None:
        """Record steps; ends the run if one of them has no answer and the server is gone."""
        asked = list(steps)
        for step in asked:
            self._record(step)
        await self._stage.met.alive.check(asked)

    # Cold

    @property
    def _writers(self) -> list[Worker]:
        return [self._crew.workers[rank] for rank in self._crew.engine.writers]

    async def _cold(self) -> bool:
        """LOOKUP and STORE; tells whether there is something to look for afterwards."""
        work = self._work
        await gather_all(
            in_thread(
                self._stage.threads,
                partial(w.pool.fill, work.plans[w.rank].source, work.digests, share),
            )
            for w in self._writers
            for share in self._shares
        )
        request = self._open("cold")
        found = await self._look_up(request, Pass.COLD, expected=0)
        if found.outcome is not Outcome.OK:
            await self._settle(request)
            return False
        stores = await gather_all(self._store(request, worker) for worker in self._writers)
        self._stored_ns = self._stage.clock.now_ns()
        await self._answered(stores)
        await self._settle(request)
        return all(step.outcome is Outcome.OK for step in stores)

    async def _store(self, request: OpenRequest, worker: Worker) -> TransferRecord:
        """STORE; once it is answered, and landed, begin to overwrite what is to be reused.

        That goes on while the store is looked for: an engine does not wait either.
        """
        source = self._work.plans[worker.rank].source
        stored = await requests.store(self._stage, self._crew, request, worker, source)
        if REUSED_SOURCE in self._work.probes and stored.outcome is Outcome.OK:
            self._reuse(worker, source)
        return stored

    def _reuse(self, worker: Worker, window: Window) -> None:
        loop = asyncio.get_running_loop()
        for share in self._shares:
            overwriting = loop.run_in_executor(
                self._stage.threads, partial(worker.pool.reuse, window, share)
            )
            self._stage.finishing.add(overwriting)
            self._overwriting.append(overwriting)

    async def _overwritten(self) -> None:
        """Wait until no source block of the sequence is being overwritten."""
        pending, self._overwriting = self._overwriting, []
        await asyncio.gather(*pending)

    # Warm

    async def _warm(self) -> None:
        clock = self._stage.clock
        deadline_ns = self._stored_ns + int(self._config.visible_within_s * NS_PER_S)
        attempt, wait_ns = 0, 0
        while True:
            attempt += 1
            request = self._open(f"warm-{attempt}")
            step = await requests.look_up(
                self._stage,
                self._crew,
                request,
                Pass.WARM,
                expected=self._chunks,
                total=self._chunks,
            )
            now_ns = clock.now_ns()
            visible = step.hits >= self._chunks
            # A miss says how things stood when it was asked for, however late it is read.
            if step.outcome is not Outcome.OK or visible or step.began_ns >= deadline_ns:
                break
            await self._settle(request, quietly=True)
            wait_ns = next_poll_ns(wait_ns)
            await clock.sleep_ns(min(wait_ns, deadline_ns - now_ns))
        step = replace(step, attempts=attempt, stored_ns=self._stored_ns)
        await self._answered([step])
        await self._count_dropped(step)
        await self._retrieve_if_hit(request, step)

    async def _count_dropped(self, step: LookupRecord) -> None:
        """Count what was stored, and ask the server for what became of chunks that are missing."""
        self._account.stored += self._chunks
        missing = max(0, step.expected - step.hits)
        if step.outcome is not Outcome.OK or not missing:
            return
        now = await self._stage.met.condition.counters(self._crew.engine.model_name)
        self._record(
            DroppedRecord(
                missing=missing,
                accounted=self._account.explain(missing, now),
                total=self._chunks,
                allowed=self._config.max_dropped > 0,
            )
        )

    async def _retrieve_if_hit(self, request: OpenRequest, step: LookupRecord) -> None:
        work = self._work
        if step.outcome is not Outcome.OK or step.hits != self._chunks:
            await self._settle(request)
            return
        await self._overwritten()
        moved = await self._retrieve(request)
        if REUSED_SOURCE in work.probes and not work.overwritten:
            for worker in self._writers:
                self._reuse(worker, work.plans[worker.rank].source)  # back to its content
            await self._overwritten()
        for record in await self._prover.prove(work, tuple(self._past)):
            self._record(record)
        if all(transfer.outcome is Outcome.OK for transfer in moved):
            await self._probe()

    async def _retrieve(self, request: OpenRequest, skip: int = 0) -> list[TransferRecord]:
        """Poison, RETRIEVE all except `skip` tokens on every reading rank, end the request."""
        plans, workers = self._work.plans, self._crew.workers
        await gather_all(
            in_thread(self._stage.threads, partial(w.pool.poison, plans[w.rank].destination, share))
            for w in workers
            for share in self._shares
        )
        moved = await gather_all(
            requests.retrieve(
                self._stage, self._crew, request, w, plans[w.rank].destination, skip_tokens=skip
            )
            for w in workers
        )
        await self._answered(moved)
        await self._settle(request)
        return moved

    # Probes

    async def _probe(self) -> None:
        """Ask what the sequence owes beyond the two passes."""
        keys, nobody = self._crew.keys, f"nobody-{self._stage.nonce}"
        if SKIPPED_TOKENS in self._work.probes:
            await self._partial()
        if OTHER_TENANTS in self._work.probes:
            await self._ask_as(Pass.SALT, replace(keys, cache_salt=nobody))
            await self._ask_as(Pass.MODEL, replace(keys, model_name=nobody))
        if SHORTER_RANGE in self._work.probes:
            await self._ask_shorter()

    async def _ask_as(self, which: Pass, keys: KeyMaker) -> None:
        """LOOKUP as another tenant, who must find nothing, and end the request."""
        request = self._open(which.value, keys=keys)
        await self._look_up(request, which, expected=0)
        await self._settle(request)

    async def _ask_shorter(self) -> None:
        """LOOKUP all chunks except the last, and end the request.

        A server that reads no end is given no more tokens.
        """
        chunks = self._chunks - 1
        end = chunks * self._crew.geometry.chunk_tokens
        reads_end = self._stage.met.dialect.lookup_reads_end
        tokens = self._work.tokens if reads_end else self._work.tokens[:end]
        request = self._crew.desk.open(
            tokens, end=end, request_id=self._request_id(Pass.BOUNDS.value)
        )
        await self._look_up(request, Pass.BOUNDS, expected=chunks)
        await self._settle(request)

    async def _partial(self) -> None:
        """LOOKUP once more, and RETRIEVE all except the first tokens."""
        request = self._open("partial")
        step = await self._look_up(request, Pass.PARTIAL, expected=self._chunks)
        if step.outcome is not Outcome.OK or step.hits != self._chunks:
            await self._settle(request)
            return
        geometry = self._crew.geometry
        skip = skip_tokens(
            seed=self._crew.engine.seed,
            turn=self._work.seq // self._config.partial_every,
            chunks=geometry.chunks,
            blocks_per_chunk=geometry.blocks_per_chunk,
            block_size=geometry.spec.block_size,
            unit=self._config.partial_skip,
        )
        await self._retrieve(request, skip)
        for record in await self._prover.prove_partial(
            self._work,
            tuple(self._past),
            skip_tokens=skip,
            skipped=geometry.skipped_blocks(skip),
        ):
            self._record(record)

    # One request

    def _request_id(self, name: str) -> str:
        aside = self._work.aside.replace(" ", "-")
        part = f"{aside}-{name}" if aside else name
        return f"bs-{self._stage.nonce}-{self._work.seq}-{part}"

    def _open(self, name: str, *, keys: KeyMaker | None = None) -> OpenRequest:
        """Enter a request for all chunks of the sequence into the book."""
        return self._crew.desk.open(
            self._work.tokens,
            end=self._crew.geometry.end,
            request_id=self._request_id(name),
            keys=keys,
        )

    async def _look_up(self, request: OpenRequest, which: Pass, *, expected: int) -> LookupRecord:
        step = await requests.look_up(
            self._stage, self._crew, request, which, expected=expected, total=self._chunks
        )
        await self._answered([step])
        return step

    async def _settle(self, request: OpenRequest, quietly: bool = False) -> None:
        """Free and end a request; `quietly` records only what failed."""
        ends = await requests.settle(self._crew, request)
        for end in ends:
            if not quietly or end.outcome is not Outcome.OK:
                self._record(end)
        await self._stage.met.alive.check(ends)

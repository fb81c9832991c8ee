"""The baseline: every sequence once cold, once warm, every byte proven.

*cold*: LOOKUP must miss all, every writing rank STOREs everything.  *warm*: LOOKUP again, with a
fresh request id each time, until the store is visible or `visible_within` ends; poison, RETRIEVE
on every reading rank into other blocks, verify, compare digests.  With `expect_warm` the cold
pass must hit everything and is the one that is retrieved and verified.

Some sequences carry probes (`load.probes` says which): a source that is overwritten as soon as
STORE is acknowledged; a RETRIEVE but for the first tokens; LOOKUPs under another salt and model
name, and of a shorter range.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any

from benchserver.client.connection import CallFailedError
from benchserver.client.http import HttpApi
from benchserver.client.keys import KeyMaker
from benchserver.client.lookups import LookupDesk, OpenRequest, next_poll_ns
from benchserver.client.transfer import Moved, RefusedError, dtype_hint
from benchserver.client.worker import Worker
from benchserver.clock import NS_PER_S, Clock
from benchserver.config import RunConfig
from benchserver.errors import FatalError, one_line
from benchserver.history import (
    LookupRecord,
    Outcome,
    Probe,
    SequenceRecord,
    Step,
    TransferRecord,
    sequence_label,
)
from benchserver.kv.blocks import Window
from benchserver.kv.pattern import chunk_digests
from benchserver.kv.pool import shares
from benchserver.kv.verify import Candidate
from benchserver.load.partial import skip_tokens
from benchserver.load.workload import chunked_tokens, equal_chunk_tokens
from benchserver.scenarios.baseline.plan import (
    EQUAL_CHUNKS,
    OTHER_TENANTS,
    REUSED_SOURCE,
    SHORTER_RANGE,
    SKIPPED_TOKENS,
    Pass,
    Probing,
)
from benchserver.scenarios.proof import Prover, SequencePlan
from benchserver.stage.alive import AliveCheck
from benchserver.tasks import Finishing, gather_all, in_thread
from protocol.errors import ProtocolError
from protocol.keys import CacheKey
from protocol.ops import Op

_REMEMBERED = 16
"""How many past sequences a wrong page can be traced to."""

_THREADS_OF_ONE = 2

_EQUAL_CHUNKS = "equal chunks"

Emit = Callable[[str, Step], None]


class Baseline:
    """Runs sequences one after the other; owns no connection and no memory."""

    def __init__(
        self,
        config: RunConfig,
        *,
        chunk_tokens: int,
        nonce: str,
        workers: Sequence[Worker],
        desk: LookupDesk,
        keys: KeyMaker,
        http: HttpApi | None,
        cross_check: bool,
        probing: Probing,
        content_root: bytes,
        clock: Clock,
        executor: Executor,
        emit: Emit,
        alive: AliveCheck,
        finishing: Finishing,
    ) -> None:
        self._config = config
        self._geometry = config.geometry(chunk_tokens)
        self._nonce = nonce
        self._workers = workers
        self._desk = desk
        self._keys = keys
        self._http = http
        self._cross_check = cross_check
        self._probing = probing
        self._root = content_root
        self._hint = dtype_hint(config.spec)
        self._prover = Prover(
            workers,
            http if cross_check else None,
            executor,
            sources=() if config.expect_warm else config.writers,
            geometry=self._geometry,
        )
        self._clock = clock
        self._executor = executor
        self._emit = emit
        self._past: deque[Candidate] = deque(maxlen=_REMEMBERED)
        self._steps: list[Step] = []
        self._stored_ns = 0
        # Several workers divide the cores among them; a single one is divided.
        self._shares = shares(_THREADS_OF_ONE if len(workers) == 1 else 1)
        self._finishing = finishing
        self._overwriting: list[asyncio.Future[None]] = []
        self.alive = alive

    async def run_sequence(self, seq: int) -> tuple[list[SequenceRecord], FatalError | None]:
        """Run one sequence to its end, or to the point where it could not go on.

        Returns the record of the sequence, and that of a request that goes with it, if one does.
        """
        record, fatal = await self._run(self._plan(seq))
        if fatal is not None or not self._probing.needs_equal_chunks(seq):
            return [record], fatal
        aside, fatal = await self._run(self._plan_aside(seq))
        return [record, aside], fatal

    async def _run(self, work: SequencePlan) -> tuple[SequenceRecord, FatalError | None]:
        started_ns = self._clock.now_ns()
        self._steps = []
        fatal: FatalError | None = None
        try:
            await self._both_passes(work)
        except FatalError as error:
            fatal = error
        record = SequenceRecord(
            seq=work.seq,
            expect_warm=self._config.expect_warm,
            cross_check=self._cross_check,
            probes=work.probes,
            overwritten=work.overwritten,
            writers=self._config.writers,
            readers=tuple(worker.rank for worker in self._workers),
            steps=tuple(self._steps),
            wall_ns=self._clock.now_ns() - started_ns,
            aside=work.aside,
        )
        return record, fatal

    def _plan(self, seq: int) -> SequencePlan:
        config, probes = self._config, self._probing.owed(seq)
        return self._planned(
            seq,
            chunked_tokens(config.seed, seq, config.num_tokens, self._geometry.chunk_tokens),
            probes,
            overwritten=REUSED_SOURCE in probes and not self._probing.gives_back(seq),
        )

    def _plan_aside(self, seq: int) -> SequencePlan:
        """Plan the request of equal chunks that goes with a first sequence that has none."""
        config = self._config
        return self._planned(
            seq,
            equal_chunk_tokens(config.seed, seq, config.num_tokens, self._geometry.chunk_tokens),
            frozenset({EQUAL_CHUNKS}),
            aside=_EQUAL_CHUNKS,
        )

    def _planned(
        self,
        seq: int,
        tokens: Sequence[int],
        probes: frozenset[Probe],
        *,
        overwritten: bool = False,
        aside: str = "",
    ) -> SequencePlan:
        digests = chunk_digests(self._root, tokens, self._geometry.chunk_tokens)
        label = sequence_label(seq, aside).replace("=", " ")
        self._past.append(Candidate(label=label, digests=digests))
        plans = tuple(
            self._config.block_plan(self._geometry, turn=seq, rank=worker.rank)
            for worker in self._workers
        )
        return SequencePlan(
            seq=seq,
            tokens=tokens,
            digests=digests,
            plans=plans,
            probes=probes,
            overwritten=overwritten,
            aside=aside,
        )

    async def _both_passes(self, work: SequencePlan) -> None:
        if self._config.expect_warm:
            await self._expect_warm(work)
        elif await self._cold(work):
            await self._warm(work)

    def _record(self, work: SequencePlan, step: Step) -> None:
        self._steps.append(step)
        self._emit(sequence_label(work.seq, work.aside), step)

    async def _cold(self, work: SequencePlan) -> bool:
        """LOOKUP and STORE; tells whether there is something to look for afterwards."""
        await self._overwritten()
        writers = [self._workers[rank] for rank in self._config.writers]
        await gather_all(
            in_thread(
                self._executor,
                partial(w.pool.fill, work.plans[w.rank].source, work.digests, share),
            )
            for w in writers
            for share in self._shares
        )
        request = self._open(work, "cold")
        found = await self._look_up(work, request, Pass.COLD, expected=0)
        if found is None or found.outcome is not Outcome.OK:
            await self._settle(work, request)
            return False
        stores = await gather_all(
            self._transfer(
                work, request, w, "STORE", partial(self._store, work, w), work.plans[w.rank].source
            )
            for w in writers
        )
        self._stored_ns = self._clock.now_ns()
        for step in stores:
            self._record(work, step)
        await self.alive.check(stores)
        await self._settle(work, request)
        return all(step.outcome is Outcome.OK for step in stores)

    async def _store(
        self, work: SequencePlan, worker: Worker, key: CacheKey, window: Window
    ) -> Moved:
        """STORE; once it is answered, and landed, begin to overwrite what is to be reused.

        That goes on while the store is looked for: an engine does not wait either.
        """
        moved = await worker.mode.store(key, window)
        if REUSED_SOURCE in work.probes:
            self._reuse(worker, window)
        return moved

    def _reuse(self, worker: Worker, window: Window) -> None:
        loop = asyncio.get_running_loop()
        for share in self._shares:
            overwriting = loop.run_in_executor(
                self._executor, partial(worker.pool.reuse, window, share)
            )
            self._finishing.add(overwriting)
            self._overwriting.append(overwriting)

    async def _overwritten(self) -> None:
        """Wait until no source block is being overwritten."""
        pending, self._overwriting = self._overwriting, []
        await asyncio.gather(*pending)

    async def _warm(self, work: SequencePlan) -> None:
        deadline_ns = self._stored_ns + int(self._config.visible_within_s * NS_PER_S)
        attempt, wait_ns = 0, 0
        while True:
            attempt += 1
            request = self._open(work, f"warm-{attempt}")
            # A miss says how things stood when it was asked for, however late it is read.
            asked_ns = self._clock.now_ns()
            step = await self._look_up_once(request, Pass.WARM, self._geometry.chunks)
            now_ns = self._clock.now_ns()
            visible = step.hits >= self._geometry.chunks
            if step.outcome is not Outcome.OK or visible or asked_ns >= deadline_ns:
                break
            await self._settle(work, request, quietly=True)
            wait_ns = next_poll_ns(wait_ns)
            await self._clock.sleep_ns(min(wait_ns, deadline_ns - now_ns))
        step = replace(step, attempts=attempt, lag_ns=now_ns - self._stored_ns)
        self._record(work, step)
        await self.alive.check([step])
        await self._retrieve_if_hit(work, request, step)

    async def _expect_warm(self, work: SequencePlan) -> None:
        request = self._open(work, "cold")
        step = await self._look_up(work, request, Pass.COLD, expected=self._geometry.chunks)
        await self._retrieve_if_hit(work, request, step)

    async def _retrieve_if_hit(
        self, work: SequencePlan, request: OpenRequest, step: LookupRecord
    ) -> None:
        if step.outcome is not Outcome.OK or step.hits != self._geometry.chunks:
            await self._settle(work, request)
            return
        await self._overwritten()
        moved = await self._retrieve(work, request)
        if REUSED_SOURCE in work.probes and not work.overwritten:
            for rank in self._config.writers:
                self._reuse(self._workers[rank], work.plans[rank].source)  # back to its content
            await self._overwritten()
        for record in await self._prover.prove(work, tuple(self._past)):
            self._record(work, record)
        if not all(transfer.outcome is Outcome.OK for transfer in moved):
            return
        if SKIPPED_TOKENS in work.probes:
            await self._partial(work)
        if OTHER_TENANTS in work.probes:
            await self._ask_as(work, Pass.SALT, replace(self._keys, cache_salt=self._nobody))
            await self._ask_as(work, Pass.MODEL, replace(self._keys, model_name=self._nobody))
        if SHORTER_RANGE in work.probes:
            await self._ask_shorter(work)

    @property
    def _nobody(self) -> str:
        """Return a cache salt and model name that nobody has."""
        return f"nobody-{self._nonce}"

    async def _ask_as(self, work: SequencePlan, which: Pass, keys: KeyMaker) -> None:
        """LOOKUP as another tenant, who must find nothing, and end the request."""
        request = self._open(work, which.value, keys=keys)
        await self._look_up(work, request, which, expected=0)
        await self._settle(work, request)

    async def _ask_shorter(self, work: SequencePlan) -> None:
        """LOOKUP all chunks but the last, and end the request.

        A server that reads no end is given no more tokens.
        """
        chunks = self._geometry.chunks - 1
        end = chunks * self._geometry.chunk_tokens
        if not self._workers[0].rpc.dialect.lookup_reads_end:
            work = replace(work, tokens=work.tokens[:end])
        request = self._open(work, Pass.BOUNDS.value, end=end)
        await self._look_up(work, request, Pass.BOUNDS, expected=chunks)
        await self._settle(work, request)

    async def _partial(self, work: SequencePlan) -> None:
        """LOOKUP once more, and RETRIEVE all but the first tokens."""
        request = self._open(work, "partial")
        step = await self._look_up(work, request, Pass.PARTIAL, expected=self._geometry.chunks)
        if step.outcome is not Outcome.OK or step.hits != self._geometry.chunks:
            await self._settle(work, request)
            return
        skip = skip_tokens(
            seed=self._config.seed,
            turn=work.seq // self._config.partial_every,
            chunks=self._geometry.chunks,
            blocks_per_chunk=self._geometry.blocks_per_chunk,
            block_size=self._geometry.spec.block_size,
            unit=self._config.partial_skip,
        )
        await self._retrieve(work, request, skip)
        for record in await self._prover.prove_partial(
            work, tuple(self._past), skip_tokens=skip, skipped=self._geometry.skipped_blocks(skip)
        ):
            self._record(work, record)

    async def _retrieve(
        self, work: SequencePlan, request: OpenRequest, skip: int = 0
    ) -> list[TransferRecord]:
        """Poison, RETRIEVE on every reading rank but for `skip` tokens, and end the request."""
        await gather_all(
            in_thread(self._executor, partial(w.pool.poison, work.plans[w.rank].destination, share))
            for w in self._workers
            for share in self._shares
        )
        moved = await gather_all(
            self._transfer(
                work,
                request,
                w,
                "RETRIEVE",
                partial(w.mode.retrieve, skip_tokens=skip),
                work.plans[w.rank].destination,
                skip,
            )
            for w in self._workers
        )
        for transfer in moved:
            self._record(work, transfer)
        await self.alive.check(moved)
        await self._settle(work, request)
        return moved

    def _open(
        self, work: SequencePlan, name: str, *, end: int = 0, keys: KeyMaker | None = None
    ) -> OpenRequest:
        """Enter a request of the sequence into the book; `end` 0: of all its chunks."""
        part = f"{work.aside.replace(' ', '-')}-{name}" if work.aside else name
        request_id = f"bs-{self._nonce}-{work.seq}-{part}"
        return self._desk.open(
            work.tokens, end=end or self._geometry.end, request_id=request_id, keys=keys
        )

    async def _look_up(
        self, work: SequencePlan, request: OpenRequest, which: Pass, *, expected: int
    ) -> LookupRecord:
        step = await self._look_up_once(request, which, expected)
        self._record(work, step)
        await self.alive.check([step])
        return step

    async def _look_up_once(self, request: OpenRequest, which: Pass, expected: int) -> LookupRecord:
        started_ns = self._clock.now_ns()
        try:
            hits = await self._desk.lookup(request)
        except CallFailedError as error:
            return LookupRecord(
                which=which,
                outcome=Outcome.UNKNOWN,
                hits=0,
                expected=expected,
                total=self._geometry.chunks,
                latency_ns=self._clock.now_ns() - started_ns,
                reason=_reason(error, Op.LOOKUP.name),
            )
        return LookupRecord(
            which=which,
            outcome=Outcome.OK,
            hits=hits.chunks,
            expected=expected,
            total=self._geometry.chunks,
            latency_ns=hits.latency_ns,
        )

    async def _transfer(
        self,
        work: SequencePlan,
        request: OpenRequest,
        worker: Worker,
        name: str,
        move: Callable[[CacheKey, Window], Coroutine[Any, Any, Moved]],
        window: Window,
        skip: int = 0,
    ) -> TransferRecord:
        key = self._keys.key(
            work.tokens,
            end=self._geometry.end,
            request_id=request.request_id,
            kv_rank=worker.kv_rank,
        )
        started_ns = self._clock.now_ns()
        moved, outcome, reason = Moved(latency_ns=0, replied_ns=0, chunks=0), Outcome.OK, ""
        try:
            # Run to its end whatever happens: a STORE given up between PREPARE and COMMIT would
            # leave its reservation on the server.
            moved = await self._finishing.run(self._move(request, worker, name, move(key, window)))
        except RefusedError as error:
            outcome, reason = Outcome.FAIL, str(error) + self._hint
        except ProtocolError as error:
            outcome, reason = Outcome.FAIL, one_line(error) + self._hint
        except CallFailedError as error:
            outcome, reason = Outcome.UNKNOWN, _reason(error, name) + self._hint
        return TransferRecord(
            name=name,
            rank=worker.rank,
            outcome=outcome,
            chunks=moved.chunks,
            total=self._geometry.chunks,
            nbytes=self._geometry.bytes_behind(skip) if outcome is Outcome.OK else 0,
            latency_ns=moved.latency_ns or self._clock.now_ns() - started_ns,
            replied_ns=moved.replied_ns,
            skip_tokens=skip,
            reason=reason,
        )

    @staticmethod
    async def _move(
        request: OpenRequest, worker: Worker, name: str, move: Coroutine[Any, Any, Moved]
    ) -> Moved:
        moved = await move
        if name == "RETRIEVE" and worker.kv_rank in request.unread:
            request.unread.remove(worker.kv_rank)  # its lock is given back
        return moved

    async def _settle(
        self, work: SequencePlan, request: OpenRequest, quietly: bool = False
    ) -> None:
        """Free and end a request; `quietly` records only what failed."""
        ends = await self._desk.settle(request)
        for end in ends:
            if not quietly or end.outcome is not Outcome.OK:
                self._record(work, end)
        await self.alive.check(ends)


def _reason(error: CallFailedError, step: str) -> str:
    """Return the error's text; the operation only where it is not the step itself."""
    return one_line(error.reason if error.op.name == step else error)

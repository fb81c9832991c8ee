"""One request as an engine makes it: LOOKUP, RETRIEVE, prefill, STORE, END_SESSION.

Between its calls lies nothing of our own, unless LOOKUP hits another number of chunks than the
model foresaw.  Bytes are looked at once the server is done with the request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchserver.client.lookups import OpenRequest
from benchserver.clock import NS_PER_S
from benchserver.history import (
    CallRecord,
    DigestRecord,
    EndRecord,
    LookupRecord,
    Outcome,
    TransferRecord,
)
from benchserver.kv.owners import Candidate
from benchserver.scenarios import requests
from benchserver.scenarios.digests import Digester
from benchserver.scenarios.load.config import LoadConfig, verified
from benchserver.scenarios.load.lease import Armed, Lease
from benchserver.scenarios.load.losses import Losses
from benchserver.scenarios.load.model import Stored
from benchserver.scenarios.load.records import Clocking, Missing, RequestRecord
from benchserver.scenarios.load.work import Work
from benchserver.stage.stage import Crew, Stage
from benchserver.tasks import gather_all

_REMEMBERED = 16
"""How many past requests a wrong page can be traced to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all requests of a run share; `past` are the last ones, for tracing wrong pages.

    `digesters` take the digests of each client; None: this run compares none.
    """

    stage: Stage
    config: LoadConfig
    stored: Stored
    losses: Losses
    digesters: Sequence[Digester | None]
    past: deque[Candidate] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))


class Exchange:
    """One request on one lease: `prepare`, then `run`, once each.

    One that `looks_back` only reads, whatever is missing, and all that it reads is looked at.
    """

    def __init__(
        self, setting: Setting, lease: Lease, work: Work, *, looks_back: bool = False
    ) -> None:
        self._looks_back = looks_back
        self._stage = setting.stage
        self._config = setting.config
        self._stored = setting.stored
        self._past = setting.past
        self._digester = setting.digesters[lease.crew.number]
        self._lease = lease
        self._work = work
        self._armed = Armed(0, setting.stage.clock.now_ns())
        self._possible = 0
        self._losses = setting.losses
        self._missing_late: bool | None = None
        """Whether what is missing may merely be late; None: nothing is missing, or it is known."""
        self._known_missing = False
        self._lookup: LookupRecord | None = None
        self._retrieves: list[TransferRecord] = []
        self._stores: list[TransferRecord] = []
        self._ends: list[EndRecord] = []

    @property
    def _crew(self) -> Crew:
        return self._lease.crew

    async def prepare(self) -> int:
        """Make blocks ready for as many hits as this run can have stored; return when they were."""
        self._lease.begin()
        work = self._work
        self._past.append(Candidate(label=f"request {work.number}", digests=work.digests))
        self._armed = await self._lease.arm(work.digests, self._stored.possible(work.ids))
        return self._armed.done_ns

    async def run(
        self, planned_ns: int, free_ns: int, *, warmup: bool, done: Callable[[], None]
    ) -> RequestRecord:
        """Send it, and return what came once the server is done with it and bytes are looked at.

        It could be sent from `free_ns` on; `done` is called when the server is done with it.
        """
        clock, work = self._stage.clock, self._work
        sent_ns = clock.now_ns()
        request = self._crew.desk.open(work.tokens, end=work.end, request_id=self._request_id())
        try:
            lookup = await self._calls(request)
        finally:
            ended_ns = clock.now_ns()
            done()
        await self._answered([lookup, *self._retrieves, *self._stores, *self._ends])
        delivered = bool(self._retrieves) and _all_ok(self._retrieves)
        share = 1.0 if self._looks_back else self._config.verified_share
        looked_at = verified(share, self._crew.engine.seed, work.number)
        look = delivered and looked_at
        past = tuple(self._past)  # threads read it, while other requests are appended
        evidence = await self._lease.look(work.digests[: lookup.hits], past) if look else ()
        cross_check = look and self._digester is not None
        digests = await self._digests(lookup.hits) if cross_check else ()
        locks_known = self._losses.locks_known
        missing, told = await self._explained(), await self._told()
        return RequestRecord(
            number=work.number,
            client=self._crew.number,
            tokens=len(work.tokens),
            chunks=len(work.ids),
            possible=self._possible,
            missing=missing,
            told=told,
            locks_known=locks_known,
            looked_at=looked_at,
            cross_check=cross_check,
            looks_back=self._looks_back,
            warmup=warmup,
            lookup=lookup,
            retrieves=tuple(self._retrieves),
            stores=tuple(self._stores),
            ends=tuple(self._ends),
            evidence=evidence,
            digests=digests,
            clocking=Clocking(
                planned_ns=planned_ns,
                free_ns=free_ns,
                sent_ns=sent_ns,
                ended_ns=ended_ns,
                service_ns=self._service_ns(lookup),
            ),
        )

    def _request_id(self) -> str:
        again = "-again" * self._looks_back
        return f"bs-{self._stage.nonce}-{self._work.number}{again}"

    async def _calls(self, request: OpenRequest) -> LookupRecord:
        """Make all calls."""
        lookup = await self._look_up(request)
        read = lookup.outcome is Outcome.OK and await self._retrieve(request, lookup.hits)
        if read and not self._looks_back:
            await self._store(request, lookup.hits)
        self._ends = await requests.settle(self._crew, request)
        return lookup

    async def _look_up(self, request: OpenRequest) -> LookupRecord:
        ids = self._work.ids
        expected = self._stored.acknowledged(ids)
        lookup = await requests.look_up(
            self._stage, self._crew, request, "load", expected=expected, total=len(ids)
        )
        self._possible = self._stored.possible(ids)
        if lookup.outcome is Outcome.OK and lookup.hits < expected:
            self._note_missing(ids[lookup.hits], lookup.began_ns)
        return lookup

    def _note_missing(self, name: bytes, asked_ns: int) -> None:
        """Expect a chunk no more that is not found, and note whether it may merely be late."""
        if not self._stored.acknowledged((name,)):  # a LOOKUP at the same time was faster
            self._known_missing = True
            return
        age_ns = asked_ns - self._stored.since_ns(name)
        self._missing_late = age_ns < int(self._config.visible_within_s * NS_PER_S)
        if not (self._looks_back and self._missing_late):  # else it is asked for again
            self._stored.missed(name)

    async def _explained(self) -> Missing:
        """Return why a chunk is missing; asked for once the server is done with the request."""
        if self._known_missing:
            return Missing.KNOWN
        if self._missing_late is None:
            return Missing.NOTHING
        return await self._losses.explain(may_be_late=self._missing_late)

    async def _told(self) -> str:
        broken = any(step.outcome is Outcome.FAIL for step in self._retrieves)
        return await self._losses.told() if broken else ""

    async def _retrieve(self, request: OpenRequest, hits: int) -> bool:
        """RETRIEVE what hit on every rank; tells whether the request can go on."""
        if hits != self._armed.hits:
            self._armed = await self._lease.arm(self._work.digests, hits)
        if not hits:
            return True
        end = hits * self._crew.geometry.chunk_tokens
        self._retrieves = await gather_all(
            requests.retrieve(
                self._stage,
                self._crew,
                request,
                worker,
                self._lease.destination(worker.rank),
                end=end,
            )
            for worker in self._crew.workers
        )
        if any(step.outcome is Outcome.UNKNOWN for step in self._retrieves):
            self._losses.locks_known = False
        return _all_ok(self._retrieves)

    async def _store(self, request: OpenRequest, hits: int) -> None:
        """Compute what did not hit, as an engine does, and STORE it on every writing rank."""
        work, crew, clock = self._work, self._crew, self._stage.clock
        missed = len(work.ids) - hits
        if not missed:
            return
        step = crew.geometry.chunk_tokens
        if pause_ns := self._config.prefill_ns(missed * step):
            await clock.sleep_ns(pause_ns)
        self._stored.begin(work.ids[hits:])
        self._stores = await gather_all(
            requests.store(
                self._stage,
                crew,
                request,
                crew.workers[rank],
                self._lease.source(rank, missed),
                start=hits * step,
            )
            for rank in crew.engine.writers
        )
        if _all_ok(self._stores):
            self._stored.acknowledge(work.ids[hits:], clock.now_ns())
            self._losses.account.stored += missed

    async def _digests(self, hits: int) -> tuple[DigestRecord, ...]:
        digester = self._digester
        return () if digester is None else await self._lease.digests(digester, hits)

    async def _answered(self, steps: Sequence[CallRecord]) -> None:
        """End the run if a step has no answer and the server is gone.

        If it is not, it may still read or write blocks: they rest as long as it had to answer.
        """
        unknown = [step for step in steps if step.outcome is Outcome.UNKNOWN]
        if not unknown:
            return
        await self._stage.met.alive.check(unknown)
        if any(isinstance(step, TransferRecord) for step in unknown):
            await self._stage.clock.sleep_ns(int(self._stage.target.timeout_s * NS_PER_S))

    def _service_ns(self, lookup: LookupRecord) -> int:
        """Return what the server's calls took: those of several ranks run side by side."""
        spans = [
            max(step.ended_ns for step in steps) - min(step.began_ns for step in steps)
            for steps in (self._retrieves, self._stores)
            if steps
        ]
        return lookup.latency_ns + sum(spans) + sum(end.latency_ns for end in self._ends)


def _all_ok(steps: Sequence[CallRecord]) -> bool:
    return all(step.outcome is Outcome.OK for step in steps)

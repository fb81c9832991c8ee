"""The stage: all that a scenario is given, and nothing that it could change for others.

A value; what it refers to belongs to the run, which opens it before a scenario plays and closes
it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchserver.check.verdict import Finding, Verdict
from benchserver.client.keys import KeyMaker
from benchserver.client.lookups import LookupDesk
from benchserver.clock import Clock
from benchserver.config.engine import Engine
from benchserver.config.target import Target
from benchserver.errors import RESTARTS, FatalError, ServerLostError
from benchserver.geometry import Geometry
from benchserver.history import CallRecord, Probe, Step
from benchserver.result import ServerFacts
from benchserver.stage.book import Book
from benchserver.stage.connections import Connections
from benchserver.stage.meeting import Met
from benchserver.stats.measures import Measures
from benchserver.tasks import Finishing, Threads

if TYPE_CHECKING:
    from benchserver.client.worker import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """One client: the registered workers of an engine, and what their requests are made of.

    `number` counts the clients of a run; the ranks of each are numbered from 0.  `cross_check`: the
    server's HTTP API gives digests of their memory.  `content_root` is where the content of every
    page comes from.
    """

    number: int
    engine: Engine
    geometry: Geometry
    workers: tuple[Worker, ...]
    desk: LookupDesk
    keys: KeyMaker
    cross_check: bool
    content_root: bytes

    @property
    def instances(self) -> frozenset[int]:
        """Return the instance ids of its workers."""
        return frozenset(worker.instance_id for worker in self.workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One server that was met, and the clients that the scenario asked for: a crew each.

    `nonce` is unique to this run, for request ids.  What `finishing` runs goes to its end even if
    the scenario is cancelled.  `survives`: if the server is lost, the run waits until it is back,
    and the scenario plays on, on another stage.  The run ends after `most_failures` units of work
    that failed.
    """

    target: Target
    server: ServerFacts
    met: Met
    nonce: str
    clock: Clock
    threads: Threads
    finishing: Finishing
    connections: Connections
    book: Book
    crews: tuple[Crew, ...]
    survives: bool = False
    most_failures: int | None = None

    @property
    def measures(self) -> Measures:
        """Return what the run measures, to be added to."""
        return self.book.measures

    def emit(self, label: str, step: Step) -> None:
        """Tell of one step of a unit when it ends; `label` is what lines call the unit."""
        self.book.reporter.step(label, step)

    async def conclude(
        self,
        label: str,
        findings: Sequence[Finding],
        *,
        probes: Iterable[Probe] = (),
        steps: Iterable[tuple[str, Step]] = (),
        fatal: FatalError | None = None,
    ) -> None:
        """Enter what was found about one unit of work, and tell of it.

        `probes` are those that it made.  `steps`, each with its label, were not told when they
        ended: they are now, so that nothing comes between them and the verdict.  `fatal`
        is why the scenario cannot go on after it.  Raises ServerLostError if a connection was lost
        meanwhile.
        """
        if self.survives and isinstance(fatal, RESTARTS):
            self.book.cut_short(label)
            return
        self.check_still_there(label)
        if fatal is None and self.crews:
            instances = frozenset[int]().union(*(crew.instances for crew in self.crews))
            findings = await self.met.condition.explain(findings, instances)
        for name, step in steps:
            self.emit(name, step)
        self.book.conclude(label, findings, probes)
        if fatal is None and self.connections.lost:
            raise self._lost(label)
        failures = self.book.counts[Verdict.INVALID]
        if fatal is None and self.most_failures is not None and failures >= self.most_failures:
            raise FatalError(f"ended early: {failures} failed, as many as --max-failures allows")

    async def rest_ns(self, duration_ns: int) -> None:
        """Sleep because the plan says so, which is no stall."""
        self.book.resting += 1
        try:
            await self.clock.sleep_ns(duration_ns)
        finally:
            self.book.resting -= 1

    async def check_answered(self, label: str, steps: Sequence[CallRecord]) -> None:
        """Raise what AliveCheck does if the server owes answers and is lost; enter nothing then."""
        try:
            await self.met.alive.check(steps)
        except RESTARTS:
            self.book.cut_short(label)
            raise

    def check_still_there(self, label: str) -> None:
        """Raise ServerLostError, and enter nothing, if answers may be those of another server.

        Only on a run that survives it: on any other what was found is entered first.
        """
        if self.survives and self.connections.lost:
            self.book.cut_short(label)
            self.check_beside(label)

    def check_beside(self, label: str) -> None:
        """Raise the same; `label` is no unit of work, so none is cut short."""
        if self.survives and self.connections.lost:
            raise self._lost(label)

    def _lost(self, label: str) -> ServerLostError:
        text = f"the connection to {self.server.rpc_url} was lost during {label}"
        if self.crews:
            text += ": a server that came back does not know our registrations"
        return ServerLostError(text)

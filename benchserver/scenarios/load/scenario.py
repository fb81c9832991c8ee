"""The load as a scenario: what it brings, what it leaves out, and how it is set up on a stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from benchserver.check.content import CANARIES, CONTENT
from benchserver.check.digests import DIGESTS
from benchserver.check.dropped import DROPPED, DroppedAccount
from benchserver.check.promises import PROMISED
from benchserver.check.transfers import STORE
from benchserver.check.verdict import Check, not_looked_at, unproven
from benchserver.config.engine import Engine
from benchserver.errors import RESTARTS
from benchserver.geometry import Geometry
from benchserver.load.arrivals import planned_ns
from benchserver.load.workloads.workload import Terms, Workload
from benchserver.scenarios.dropped import dropped_section
from benchserver.scenarios.load.checks import CHECKS, LOOK_BACK
from benchserver.scenarios.load.config import LoadConfig
from benchserver.scenarios.load.l1 import chunk_bytes, l1_bytes
from benchserver.scenarios.load.series import RATES, SERIES
from benchserver.stage.stage import Stage
from benchserver.stage.traits import Omissions, Traits

if TYPE_CHECKING:
    from benchserver.scenarios.load.plan import Plan
    from benchserver.scenarios.load.run import LoadRun
    from protocol.counters import Counters

_FIRST_TURNS = range(2)
"""Of each lease: their blocks are written before the first request."""


class Load:
    """Requests as engines make them, from many clients at once."""

    def __init__(self, config: LoadConfig) -> None:
        self._config = config
        self._run: LoadRun | None = None
        """What has begun: it goes on if the server is lost and comes back."""

    @property
    def traits(self) -> Traits:
        """Return what is known of it before anything is sent."""
        return Traits(
            name="load",
            unit="request",
            checks=CHECKS,
            probes=(LOOK_BACK,),
            series=SERIES,
            rates=RATES,
            clients=self._config.clients,
            in_flight=self._config.leases,
            turns=_FIRST_TURNS,
            fits=self._fits,
        )

    def _fits(self, engine: Engine, geometry: Geometry, l1_bytes: int) -> None:
        self._config.asked.bind(terms_of(self._config, engine, geometry, l1_bytes))

    def omissions(self, stage: Stage) -> Omissions:
        """Return the checks that this run leaves out, and why."""
        checks: dict[Check, str] = {}
        if self._config.max_dropped is None:
            checks[DROPPED] = "counted, without a bound (--max-dropped)"
        if (share := self._config.verified_share) < 1:
            reason = f"--verify {self._config.verify}{': a share of all hits' if share else ''}"
            checks |= dict.fromkeys((CONTENT, CANARIES), reason)
        if left_out := self._why_no_digests(stage, share):
            checks[DIGESTS] = left_out
        probes = {} if share else {LOOK_BACK: "--verify off"}
        return Omissions(checks=checks, probes=probes)

    def _why_no_digests(self, stage: Stage, share: float) -> str:
        if self._config.digests == "off":
            return "--digests off"
        if not stage.target.needs_http:
            return "--no-http"
        if not stage.crews[0].cross_check:
            return "the server's digest API covers lmcache_driven workers alone"
        return "" if share == 1 else f"--verify {self._config.verify}"

    async def play(self, stage: Stage) -> None:
        """Send all requests, and conclude each."""
        counters = await stage.met.condition.counters(stage.crews[0].engine.model_name)
        if self._run is None:
            self._run = self._begin(stage, counters)
        else:
            self._run.resume(stage, counters)
        run, goes_on = self._run, False
        try:
            await run.play()
            if self._config.verified_share:
                await run.look_back.play()
        except RESTARTS:
            goes_on = stage.survives
            raise
        finally:
            if not goes_on:
                self._judge_end(stage, run)

    def _judge_end(self, stage: Stage, run: LoadRun) -> None:
        if self._config.max_dropped is not None:
            stage.book.ledger.add([run.account.finding(self._config.max_dropped)])
        _judge_what_never_came(stage, owes_bytes=self._config.verified_share > 0)

    def _begin(self, stage: Stage, counters: Counters | None) -> LoadRun:
        # Loaded here: the first call does not wait for numpy.
        from benchserver.scenarios.load.losses import Losses
        from benchserver.scenarios.load.run import LoadRun
        from benchserver.scenarios.load.section import section_of

        workload = bound(self._config, stage)
        losses = Losses(stage, account := DroppedAccount(counters))
        run = LoadRun(self._config, stage, plan_of(self._config, stage, workload), losses)
        chunk_tokens = stage.crews[0].geometry.chunk_tokens
        stage.book.add_section(partial(dropped_section, account))
        stage.book.add_section(
            partial(section_of, self._config, run, workload.describe(), chunk_tokens)
        )
        return run


def bound(config: LoadConfig, stage: Stage) -> Workload:
    """Return the workload on this stage."""
    crew = stage.crews[0]
    return config.asked.bind(terms_of(config, crew.engine, crew.geometry, l1_bytes(stage)))


def terms_of(config: LoadConfig, engine: Engine, geometry: Geometry, l1_bytes: int) -> Terms:
    """Return what a workload is told of the run."""
    return Terms(
        seed=engine.seed,
        num_tokens=geometry.num_tokens,
        in_flight=config.clients * config.concurrency,
        chunk_tokens=geometry.chunk_tokens,
        chunk_bytes=chunk_bytes(engine, geometry),
        l1_bytes=l1_bytes,
    )


def plan_of(config: LoadConfig, stage: Stage, workload: Workload) -> Plan:
    """Return the plan of all requests."""
    from benchserver.scenarios.load.plan import Plan

    steps, seed = config.steps, stage.crews[0].engine.seed
    instants: Callable[[], Iterator[int]] | None = None
    if steps:
        instants = partial(planned_ns, steps, config.arrivals, seed)
    elif workload.is_timed:
        instants = partial(_instants_of, workload)
    return Plan(
        workload.requests(),
        instants,
        most=config.requests,
        end_ns=config.end_ns,
    )


def _instants_of(workload: Workload) -> Iterator[int]:
    """Yield when the requests of a workload come that says so."""
    return (request.not_before_ns or 0 for request in workload.requests())


def _judge_what_never_came(stage: Stage, *, owes_bytes: bool) -> None:
    """Say why checks found nothing: who hits all stores nothing, who reads nothing proves nothing.

    `owes_bytes`: hits are looked at, some or all of them.
    """
    ledger = stage.book.ledger
    if not stage.book.concluded:
        return
    silent = {check for check, tally in ledger.tallies.items() if not tally.spoken}
    if STORE in silent:
        ledger.skip(STORE, "every LOOKUP hit everything, so nothing was stored")
    if owes_bytes and CONTENT in silent:
        text = "nothing was retrieved, so no byte is proven: no LOOKUP hit anything"
        ledger.add([unproven(CONTENT, text), not_looked_at(CANARIES, "nothing was retrieved")])
        if DIGESTS in silent and not ledger.tallies[DIGESTS].skipped:
            ledger.add([not_looked_at(DIGESTS, "nothing was retrieved")])
    if PROMISED in silent:
        ledger.skip(PROMISED, "no LOOKUP hit anything, so nothing was retrieved")

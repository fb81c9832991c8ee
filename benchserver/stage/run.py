"""One run from first contact to residue audit, with a clean end at any moment.

Owns the order of things and their cleaning up.  The work runs as one task: it ends by itself, by
a fatal error, or because the user asked it to stop; after each of these the server and this
machine are left as they were found, within a bounded time.  What the work is, a scenario says.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from benchserver.check.replies import REPLIES
from benchserver.check.run import RUN
from benchserver.check.sessions import SESSIONS
from benchserver.check.verdict import Verdict, failed, passed, unproven
from benchserver.clock import Clock
from benchserver.config.engine import Engine
from benchserver.config.run import RunConfig, check_config
from benchserver.errors import (
    RESTARTS,
    FatalError,
    ServerGoneError,
    ServerSilentError,
    WorkCancelledError,
    one_line,
)
from benchserver.geometry import Geometry
from benchserver.limits import shortage
from benchserver.monitor.judging import growth_section, judge_resources
from benchserver.reporter import Reporter
from benchserver.result import RunResult, ServerAccount, ServerFacts
from benchserver.stage.audit import explain_missing
from benchserver.stage.book import Book
from benchserver.stage.connections import Connections
from benchserver.stage.leaving import Leaving, within_budget
from benchserver.stage.lookout import Lookout
from benchserver.stage.meeting import Meeting, Met
from benchserver.stage.opened import Opened
from benchserver.stage.outside import Outside
from benchserver.stage.scenario import Scenario
from benchserver.stage.stage import Crew, Stage
from benchserver.stage.stall import Stall
from benchserver.tasks import cancel_and_wait, run_beside

if TYPE_CHECKING:
    from benchserver.stage.hiring import Hiring
    from benchserver.stage.pools import Pools

_NONCE_BYTES = 5
"""Forty bits, so that instance ids, which hold it and the rank, stay exact in JSON."""

_CUT_OFF = "cleaning up took too long, so what is still open on the server is unknown"

_CLOSE_S = 2.0
_INTERRUPTED_CLOSE_S = 0.3
"""How long pools may take to give their memory back: a device may never answer."""


class Run:
    """One run of one scenario; call `execute` once."""

    def __init__(
        self,
        config: RunConfig,
        scenario: Scenario,
        reporter: Reporter,
        *,
        clock: Clock,
        stop: asyncio.Event,
        cancel: threading.Event,
        outside: Outside | None = None,
    ) -> None:
        """`stop` asks for a clean end; `cancel` is shared with the worker threads."""
        self._config = config
        self._scenario = scenario
        self._clock = clock
        self._stop = stop
        self._cancel = cancel
        self._outside = outside or Outside()
        self._server = ServerFacts(rpc_url=config.target.rpc_url, http_url=config.target.http_url)
        own = config.own
        self._book = Book(
            scenario.traits,
            reporter,
            clock,
            watch=config.watch,
            total_units=own.units,
            lasts_s=own.lasts_s,
        )
        self.snapshot = self._book.monitor.snapshot
        """What is known of the run: for whoever looks on, at any time, on the event loop."""
        self._opened = Opened(connections=Connections(clock=clock, ledger=self._book.ledger))
        self._nonce = os.urandom(_NONCE_BYTES)
        self._end: BaseException | None = None
        """What ended the work, if it did not end by itself."""
        self._interrupted = False
        self._server_silent = False
        self._lookout: Lookout | None = None
        self._account = ServerAccount(unread="no server was met")
        traits, ranks = scenario.traits, 0 if config.engine is None else config.engine.tp_size
        self._workers = traits.clients * ranks
        self.threads = self._outside.threads(config.engine, self._workers * traits.in_flight)
        """They may be at work still when the run has ended."""

    async def execute(self) -> RunResult:
        """Run to the end and return the result.

        Raises UsageError if the request turns out to be impossible; all other errors become
        findings.
        """
        check_config(self._config)
        started_ns = self._clock.now_ns()
        async with AsyncExitStack() as last:
            last.callback(self.threads.shutdown, wait=False, cancel_futures=True)
            last.push_async_callback(self._close_connections)
            last.push_async_callback(self._close_http)
            last.push_async_callback(self._close_workforce)
            last.push_async_callback(self._leave)
            await self._work_until_stopped()
        if self._interrupted and isinstance(self._end, WorkCancelledError):
            self._end = None  # a thread heard of it before the loop did
        self._judge_end()
        self._book.monitor.phase = "over"
        return self._result(self._clock.now_ns() - started_ns)

    def release_segments(self) -> None:
        """Take our names out of /dev/shm and free the memory, at once."""
        if self._opened.workforce is not None:
            self._opened.workforce.release()

    async def _work_until_stopped(self) -> None:
        """Work until that ends, in whatever way, or the user asks to stop."""
        work = asyncio.ensure_future(self._work())
        stopper = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({work, stopper}, return_when=asyncio.FIRST_COMPLETED)
            self._interrupted = self._stop.is_set()
            if self._interrupted:
                self._cancel.set()
            if work.done() and not work.cancelled():
                self._end = work.exception()
                self._server_silent = isinstance(self._end, ServerSilentError)
        finally:
            await cancel_and_wait([work, stopper])

    async def _work(self) -> None:
        engine = self._config.engine if self._scenario.traits.workers else None
        meeting = Meeting(
            self._config.target,
            engine,
            self._opened,
            server=self._server,
            ledger=self._book.ledger,
            clock=self._clock,
            note=self._book.reporter.note,
        )
        met = await meeting.meet(self._outside)
        geometry: Geometry | None = None
        if engine is not None:
            engine, geometry = meeting.fit(engine, self._scenario.traits.in_flight)
            self._config = replace(self._config, engine=engine)
        await self._look_before(met, engine, geometry)
        stage = await self._set_up(met, geometry)
        self._begin(stage)
        while True:
            try:
                await self._play_on(stage)
            except RESTARTS as error:
                if not self._config.watch.reconnect:
                    self._book.reporter.note("The server was lost: --reconnect would wait for it")
                    raise
                stage = await self._come_back(error, geometry)
            else:
                return

    async def _look_before(
        self, met: Met, engine: Engine | None, geometry: Geometry | None
    ) -> None:
        """Look at the server before anything is registered, and whether requests fit into it."""
        traits = self._scenario.traits
        await met.condition.look_before(
            self._server.chunk_tokens,
            geometry,
            kv_ranks=0 if engine is None else engine.world_size,
            at_once=traits.at_once,
        )
        if traits.fits is not None and engine is not None and geometry is not None:
            before = met.condition.before
            traits.fits(engine, geometry, 0 if before is None else before.l1_bytes)

    async def _set_up(self, met: Met, geometry: Geometry | None, *, again: bool = False) -> Stage:
        """Return the stage on a server that was met; workers are registered there."""
        engine = self._config.engine
        if geometry is None or engine is None:
            return self._stage(met, ())
        hiring = self._hiring(engine)
        hire = hiring.hire_again if again else hiring.hire
        return self._stage(met, await hire(met, geometry, self._scenario.traits))

    async def _play_on(self, stage: Stage) -> None:
        """Play, and look on meanwhile."""
        self._book.monitor.phase = "running"
        lookout = self._lookout_on(stage)
        stall = Stall(stage, after_s=self._config.stalled_after_s, show=self._outside.show_stacks)
        if not (stage.crews and stage.met.dialect.pings_name_instances):
            await run_beside(stall.over(self._scenario.play(stage)), lookout.run())
            return
        from benchserver.stage.heartbeat import heartbeat_on

        heartbeat = heartbeat_on(stage)
        await heartbeat.beat()
        playing = run_beside(stall.over(self._scenario.play(stage)), lookout.run())
        await run_beside(playing, heartbeat.run())

    def _lookout_on(self, stage: Stage) -> Lookout:
        """Return the one lookout of the run: it looks at the server of this stage from now on."""
        if self._lookout is None:
            self._lookout = Lookout(
                self._book.monitor,
                stage.met.condition,
                self._server.rpc_url,
                every_s=self._config.watch.growth_every_s,
                clock=self._clock,
                note=self._book.reporter.note,
            )
        self._lookout.condition = stage.met.condition
        return self._lookout

    async def _come_back(self, error: FatalError, geometry: Geometry | None) -> Stage:
        """Return the stage on the server that was lost, once it is back."""
        # Loaded here: most runs lose no server.
        from benchserver.stage.returning import Returning

        book, config = self._book, self._config
        book.monitor.phase = "starting"
        returning = Returning(
            config.target,
            self._opened,
            server=self._server,
            ledger=book.ledger,
            clock=self._clock,
            threads=self.threads,
            note=book.reporter.note,
            within_s=config.watch.reconnect_within_s,
        )
        await returning.leave(error)
        met = await returning.meet(config.engine, self._outside)
        await self._look_before(met, config.engine, geometry)
        stage = await self._set_up(met, geometry, again=True)
        book.returned(returning.took_s)
        return stage

    def _hiring(self, engine: Engine) -> Hiring:
        # Loaded here: a scenario without workers does without.
        from benchserver.stage.hiring import Hiring

        return Hiring(
            self._config.target,
            engine,
            self._opened,
            server=self._server,
            ledger=self._book.ledger,
            nonce=self._nonce,
            clock=self._clock,
            threads=self.threads,
            make_pools=partial(self._make_pools, engine),
            note=self._book.reporter.note,
        )

    def _make_pools(self, engine: Engine, geometry: Geometry) -> Pools:
        return self._outside.pools(engine, geometry, self._nonce, self._cancel, self._workers)

    def _stage(self, met: Met, crews: tuple[Crew, ...]) -> Stage:
        return Stage(
            target=self._config.target,
            server=self._server,
            met=met,
            nonce=self._nonce.hex(),
            clock=self._clock,
            threads=self.threads,
            finishing=self._opened.finishing,
            connections=self._opened.connections,
            book=self._book,
            crews=crews,
            survives=self._config.watch.reconnect,
            most_failures=self._config.watch.most_failures,
        )

    def _begin(self, stage: Stage) -> None:
        """Enter what the scenario will not look at, and what a section says of the run itself."""
        omissions, ledger = self._scenario.omissions(stage), self._book.ledger
        for check, reason in omissions.checks.items():
            ledger.skip(check, reason)
        for probe, reason in omissions.probes.items():
            ledger.rule_out(probe, reason)
        self._book.add_section(partial(growth_section, self._book.monitor.resources))
        if stage.survives:
            self._book.add_section(self._book.restarts_section)

    # The end

    async def _leave(self) -> None:
        """Leave the server as it was found; never takes longer than said."""
        self._book.monitor.phase = "ending"
        opened, gone = self._opened, isinstance(self._end, ServerGoneError)
        if (
            not gone
            and not await within_budget(self._clean_server(), self._stop)
            and opened.workforce
        ):
            self._book.ledger.add([unproven(REPLIES, f"at the end of the run: {_CUT_OFF}")])
        why = "cleaning up took too long"
        if gone or self._server_silent:
            why = "the server was gone" if gone else "the server did not answer"
        explain_missing(
            self._book.ledger,
            registered=opened.workforce is not None,
            audited=opened.condition is not None and opened.condition.audited,
            why=why,
        )
        if opened.condition is not None:
            opened.condition.explain_missing(why)
            self._account = opened.condition.account(why)

    async def _clean_server(self) -> None:
        leaving = Leaving(
            self._opened,
            clock=self._clock,
            ledger=self._book.ledger,
            silent=self._server_silent,
            interrupted=self._interrupted,
        )
        await leaving.leave()
        self._server_silent = leaving.silent
        if self._opened.condition is not None and not leaving.silent:
            await self._opened.condition.read_configuration()

    async def _close_workforce(self) -> None:
        if self._opened.workforce is not None:
            within_s = _INTERRUPTED_CLOSE_S if self._stop.is_set() else _CLOSE_S
            await self._opened.workforce.close(within_s)

    async def _close_connections(self) -> None:
        await self._opened.connections.close()

    async def _close_http(self) -> None:
        if self._opened.http is not None:
            await self._opened.http.close()

    # The verdict

    def _judge_end(self) -> None:
        ledger, error = self._book.ledger, self._end
        if error is not None and not isinstance(error, FatalError):
            text = shortage(error)
            if not text:
                raise error
            error = FatalError(text)
        if error is not None:
            verdict = unproven if isinstance(error, ServerSilentError) else failed
            ledger.add([verdict(RUN, one_line(error))])
        elif not self._book.concluded:
            unit = self._scenario.traits.unit
            ledger.add([unproven(RUN, f"no {unit} was finished: nothing is proven")])
        else:
            ledger.add([passed(RUN)])
        if lost := self._opened.connections.lost:
            ledger.add([failed(REPLIES, f"{lost} connections to the server were lost")])
        owed = self._scenario.traits.owes_growth and self._end is None
        judge_resources(self._book.monitor.resources.now(), ledger, owed=owed)
        if not ledger.tallies[REPLIES].failed:
            ledger.add([passed(REPLIES)])
        own = SESSIONS in self._scenario.traits.checks
        if self._opened.desks and not own and not ledger.tallies[SESSIONS].spoken:
            ledger.add([passed(SESSIONS)])

    def _result(self, wall_ns: int) -> RunResult:
        book, force = self._book, self._opened.workforce
        return RunResult(
            config=self._config,
            server=self._server,
            devices=() if force is None else force.devices,
            ledger=book.ledger,
            measures=book.measures,
            sequences_ok=book.counts[Verdict.VALID],
            sequences_failed=book.counts[Verdict.INVALID],
            sequences_unproven=book.counts[Verdict.UNKNOWN],
            interrupted=self._interrupted,
            wall_ns=wall_ns,
            sections=book.sections(),
            nonce=self._nonce.hex(),
            account=self._account,
        )

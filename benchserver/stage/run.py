"""One run from first contact to residue audit, with a clean end at any moment.

Owns the order of things and their cleaning up.  The work runs as one task: it ends by itself, by
a fatal error, or because the user asked it to stop; after each of these the server and this
machine are left as they were found, within a bounded time.  What the work is, a scenario says.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from benchserver.check.replies import REPLIES
from benchserver.check.run import RUN
from benchserver.check.sessions import SESSIONS
from benchserver.check.verdict import Verdict, failed, passed, unproven
from benchserver.clock import Clock
from benchserver.config.engine import Engine
from benchserver.config.run import RunConfig, check_config
from benchserver.errors import (
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
from benchserver.stage.leaving import Leaving
from benchserver.stage.lookout import Lookout
from benchserver.stage.meeting import Meeting, Met
from benchserver.stage.opened import Opened
from benchserver.stage.outside import Outside
from benchserver.stage.scenario import Scenario
from benchserver.stage.stage import Crew, Stage
from benchserver.tasks import cancel_and_wait, run_beside, wait_first

if TYPE_CHECKING:
    from benchserver.stage.heartbeat import Heartbeat
    from benchserver.stage.hiring import Hiring
    from benchserver.stage.pools import Pools

_NONCE_BYTES = 5
"""Forty bits, so that instance ids, which hold it and the rank, stay exact in JSON."""

_CLEAN_UP_S = 20.0
"""Cleaning up after a run that was not interrupted: a few calls, and the residue audit."""

_INTERRUPTED_CLEAN_UP_S = 2.0
"""After Ctrl-C everything must be over within 3 s, whatever the server does."""

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
            last.push_async_callback(self._opened.connections.close)
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
        chunk_tokens = self._server.chunk_tokens
        if engine is None:
            await met.condition.look_before(chunk_tokens, None, kv_ranks=0)
            await self._play(self._stage(met, ()))
            return
        traits = self._scenario.traits
        engine, geometry = meeting.fit(engine, traits.in_flight)
        self._config = replace(self._config, engine=engine)
        await met.condition.look_before(
            chunk_tokens, geometry, kv_ranks=engine.world_size, at_once=traits.at_once
        )
        if traits.fits is not None:
            before = met.condition.before
            traits.fits(engine, geometry, 0 if before is None else before.l1_bytes)
        crews = await self._hiring(engine).hire(met, geometry, traits)
        stage = self._stage(met, crews)
        if not met.dialect.pings_name_instances:
            await self._play(stage)
            return
        heartbeat = self._heartbeat(met, crews)
        await heartbeat.beat()
        await run_beside(self._play(stage), heartbeat.run())

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
        )

    async def _play(self, stage: Stage) -> None:
        omissions, ledger = self._scenario.omissions(stage), self._book.ledger
        for check, reason in omissions.checks.items():
            ledger.skip(check, reason)
        for probe, reason in omissions.probes.items():
            ledger.rule_out(probe, reason)
        monitor = self._book.monitor
        monitor.phase = "running"
        self._book.add_section(partial(growth_section, monitor.resources))
        lookout = Lookout(
            monitor,
            stage.met.condition,
            self._server.rpc_url,
            every_s=self._config.watch.growth_every_s,
            clock=self._clock,
            note=self._book.reporter.note,
        )
        await run_beside(self._scenario.play(stage), lookout.run())

    def _heartbeat(self, met: Met, crews: tuple[Crew, ...]) -> Heartbeat:
        from benchserver.stage.heartbeat import Heartbeat, interval_ns

        def missed(place: str, text: str) -> None:
            self._book.ledger.add([unproven(REPLIES, f"{place}: {text}")])

        before = met.condition.before
        reap_timeout_s = 0.0 if before is None else before.reap_timeout_s
        return Heartbeat(
            [worker for crew in crews for worker in crew.workers],
            every_ns=interval_ns(reap_timeout_s),
            clock=self._clock,
            missed=missed,
        )

    # The end

    async def _leave(self) -> None:
        """Leave the server as it was found; never takes longer than said."""
        self._book.monitor.phase = "ending"
        opened, gone = self._opened, isinstance(self._end, ServerGoneError)
        if not gone and not await self._within_budget(self._clean_server()) and opened.workforce:
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

    async def _within_budget(self, cleaning: Coroutine[Any, Any, None]) -> bool:
        """Clean up as long as there is time, which is less once the user asks us to stop.

        Tells whether all was done.
        """
        task = asyncio.ensure_future(cleaning)
        stopper = asyncio.ensure_future(self._stop.wait())
        try:
            await wait_first((task, stopper), _CLEAN_UP_S)
            if not task.done() and stopper.done():
                await asyncio.wait({task}, timeout=_INTERRUPTED_CLEAN_UP_S)
            if task.done():
                task.result()
            return task.done()
        finally:
            await cancel_and_wait([task, stopper])

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

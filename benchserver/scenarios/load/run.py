"""One load from its first request to its last: leases that take what is next, and who looks on.

Each lease is a loop of its own: it takes the next request, makes its blocks ready, waits until it
is due and a place among those under way is free, sends it, looks at its bytes.  There are more
leases than places, so that the server has work while bytes are looked at.  There is no task for a
request that is yet to come, and what is asked for in the future costs nothing.
"""

from __future__ import annotations

from typing import NoReturn

from benchserver.check.judging import judge
from benchserver.check.verdict import worst
from benchserver.clock import NS_PER_S
from benchserver.environment.usage import CpuTimes, cpu_times, usable_cpus
from benchserver.load.ideal import Ideal
from benchserver.load.tokens import Tokens
from benchserver.scenarios.digests import digesters_on
from benchserver.scenarios.load.checks import JUDGES
from benchserver.scenarios.load.config import LoadConfig
from benchserver.scenarios.load.exchange import Exchange, Setting
from benchserver.scenarios.load.l1 import l1_chunks
from benchserver.scenarios.load.lease import Lease
from benchserver.scenarios.load.lookback import LookBack
from benchserver.scenarios.load.losses import Losses
from benchserver.scenarios.load.model import Stored
from benchserver.scenarios.load.permits import Permits
from benchserver.scenarios.load.pings import ping_meanwhile
from benchserver.scenarios.load.plan import Arrival, Plan, Turns
from benchserver.scenarios.load.records import ProgressRecord, RequestRecord
from benchserver.scenarios.load.series import LAG, QUEUED, SERVICE, count
from benchserver.scenarios.load.totals import Totals
from benchserver.scenarios.load.work import Drawing
from benchserver.stage.stage import Stage
from benchserver.stats.backlog import Backlog, BacklogSample
from benchserver.stats.limit import Evidence, Measurement, OpenLoop
from benchserver.stats.limit import judge as judge_limit
from benchserver.tasks import gather_all, run_beside
from protocol.counters import Counters

_LOOK_EVERY_NS = NS_PER_S // 4
_TELL_EVERY = 20
"""A line on how far it has come: every so many looks."""


class LoadRun:
    """One load on one stage."""

    def __init__(self, config: LoadConfig, stage: Stage, plan: Plan, losses: Losses) -> None:
        self._config = config
        self._plan = plan
        self._turns = Turns()
        self.account = losses.account
        self._set_up(stage, losses)
        self.start_ns = stage.clock.now_ns()
        crew = stage.crews[0]
        self.totals = Totals(begin_ns=self.start_ns + config.warmup_ns, goal=config.terms)
        self.ideal = Ideal(crew.geometry.chunk_tokens, l1_chunks(stage))
        self._backlog = Backlog()
        self._sent = 0
        self._sent_warm = 0
        self.counters: Counters | None = None
        """What the server had counted when all was done; None: it does not say, or it never was."""
        self._cpu_begin: CpuTimes | None = None
        self._cpu_end: CpuTimes | None = None

    def _set_up(self, stage: Stage, losses: Losses) -> None:
        """Make what belongs to one registration: leases, and what is stored on the server."""
        config, crew = self._config, stage.crews[0]
        self._stage = stage
        self._setting = Setting(
            stage=stage,
            config=config,
            stored=Stored(),
            losses=losses,
            digesters=digesters_on(stage) if config.digests == "all" else (None,) * config.clients,
        )
        self._drawing = Drawing(
            tokens=Tokens(crew.engine.seed),
            geometry=crew.geometry,
            content_root=crew.content_root,
        )
        self._leases = [
            Lease(stage, crew, number=number, leases=config.leases)
            for number in range(config.leases)
            for crew in stage.crews
        ]
        self.look_back = LookBack(self._setting, self._drawing, self._leases)
        now_ns = stage.clock.now_ns()
        self._permits = [Permits(config.concurrency, now_ns) for _ in stage.crews]

    def resume(self, stage: Stage, counters: Counters | None) -> None:
        """Go on with a server that was lost and came back: nothing of ours is stored there now.

        Requests that were under way are neither done nor failed; `counters` are those of the server
        now.
        """
        cut = self._sent - stage.book.concluded - stage.book.cut
        if cut > 0:
            stage.book.cut_short(f"{cut} requests", cut)
        self.account.restarted(counters)
        self.ideal.forget()
        self._set_up(stage, Losses(stage, self.account))

    @property
    def kept_bytes(self) -> int:
        """Return about how much memory takes what is kept of the load, each part up to a bound."""
        return self._setting.stored.nbytes + self.ideal.nbytes + self.totals.timeline.nbytes

    async def play(self) -> None:
        """Send all requests, and look on meanwhile."""
        self._stage.book.monitor.keeps(lambda: self.kept_bytes)
        try:
            serving = gather_all(self._serve(lease) for lease in self._leases)
            pinging = ping_meanwhile(self._stage, self.totals.begin_ns)
            await run_beside(run_beside(serving, self._look()), pinging)
            self.counters = await self._setting.losses.counters()
        finally:
            self._cpu_end = cpu_times()

    @property
    def now_ns(self) -> int:
        """Return the time since the start."""
        return self._stage.clock.now_ns() - self.start_ns

    # A lease

    async def _serve(self, lease: Lease) -> None:
        """Take one request after the other, as long as there are some."""
        while (arrival := self._plan.take(self.now_ns)) is not None:
            self._turns.begin(arrival.request.number)
            try:
                record = await self._send(lease, arrival)
            finally:
                self._turns.end(arrival.request.number, self._stage.clock.now_ns())
            if record is not None:
                self.look_back.offer(arrival.request, record)
                await self._conclude(record)

    async def _send(self, lease: Lease, arrival: Arrival) -> RequestRecord | None:
        """Make a request at its time; None if it is too late for it."""
        clock = self._stage.clock
        follows_ns = await self._turns.ready_ns(arrival.request)
        work = self._drawing.work(arrival.request)
        if not work.ids:
            self.totals.too_short += 1
            return None
        exchange = Exchange(self._setting, lease, work)
        planned_ns = max(await exchange.prepare(), follows_ns)
        if arrival.due_ns is not None:
            planned_ns = max(self.start_ns + arrival.due_ns, follows_ns)
        if (wait_ns := planned_ns - clock.now_ns()) > 0:
            await self._stage.rest_ns(wait_ns)
        permits = self._permits[lease.crew.number]
        free_ns = await permits.take()
        if self._plan.over(self.now_ns):
            permits.give(free_ns)
            return None
        if arrival.due_ns is None:
            planned_ns = max(planned_ns, free_ns)
        warmup = planned_ns < self.totals.begin_ns
        self._sent += 1
        self._sent_warm += warmup
        self.ideal.ask(work.ids, len(work.tokens), counted=not warmup)
        return await exchange.run(
            planned_ns, free_ns, warmup=warmup, done=lambda: permits.give(clock.now_ns())
        )

    async def _conclude(self, record: RequestRecord) -> None:
        self._stage.check_still_there(record.label)
        findings = judge(record, JUDGES)
        self.totals.count(record, worst(findings))
        count(record, self._stage.measures)
        if not record.warmup:
            self._stage.book.monitor.looked_up(record.chunks, record.lookup.hits)
        await self._stage.conclude(record.label, findings)

    # Looking on

    async def _look(self) -> NoReturn:
        looks, told = 0, 0
        while True:
            await self._stage.clock.sleep_ns(_LOOK_EVERY_NS)
            self._look_once()
            looks += 1
            if looks % _TELL_EVERY == 0:
                told = self._tell(told)

    def _look_once(self) -> None:
        if self.now_ns < self._config.warmup_ns:
            return
        if self._cpu_begin is None:
            self._cpu_begin = cpu_times()
        if self._plan.is_open and not self._plan.over(self.now_ns):
            self._backlog.add(
                BacklogSample(
                    at_s=self.now_ns / NS_PER_S,
                    waiting=self.waiting,
                    in_use=sum(permits.taken for permits in self._permits),
                    leases=sum(permits.count for permits in self._permits),
                )
            )

    def _tell(self, told: int) -> int:
        done, interval_s = self.totals.done + self.totals.warmup, _LOOK_EVERY_NS * _TELL_EVERY
        step = ProgressRecord(
            at_s=self.now_ns / NS_PER_S,
            done=done,
            failed=self.totals.failed,
            per_s=(done - told) / (interval_s / NS_PER_S),
            interval_s=interval_s / NS_PER_S,
        )
        self._stage.emit("load", step)
        return done

    # What came of it

    @property
    def is_open(self) -> bool:
        """Tell whether requests are planned, whatever the server does."""
        return self._plan.is_open

    @property
    def waiting(self) -> int:
        """Return how many requests of an open loop are due and not sent."""
        gone = self._sent + self.totals.too_short
        return max(0, self._plan.due(self.now_ns) - gone) if self._plan.is_open else 0

    @property
    def planned(self) -> int:
        """Return how many requests behind the warm-up were due, or, in a closed loop, sent."""
        return self._sent + self.waiting - self._sent_warm

    @property
    def duration_s(self) -> float:
        """Return the time behind the warm-up in which requests were sent, and answered."""
        last_ns = self.totals.last_ns - self.totals.begin_ns
        end_ns = self._config.end_ns
        asked_ns = 0 if end_ns is None else end_ns - self._config.warmup_ns
        return max(0, last_ns, min(asked_ns, self.now_ns)) / NS_PER_S

    @property
    def with_server(self) -> float | None:
        """Return how many requests the server had on average; None: none was measured.

        What is missing of all leases is our own work (making blocks ready, looking at them), a
        pause for the prefill, and, in an open loop, the time in which nothing was due.
        """
        service = self._stage.measures.latencies[SERVICE].summary()
        if service is None or not self.duration_s:
            return None
        return service.mean_ms * service.count / 1000 / self.duration_s

    def measurement(self) -> Measurement:
        """Return which side was the limit."""
        latencies, begin = self._stage.measures.latencies, self._cpu_begin
        used = (self._cpu_end or cpu_times()).since(begin) if begin else None
        return judge_limit(
            Evidence(
                lag=latencies[LAG].summary(),
                service=latencies[SERVICE].summary(),
                wall_s=0.0 if used is None else used.wall_s,
                loop_cpu_s=0.0 if used is None else used.thread_s,
                process_cpu_s=0.0 if used is None else used.process_s,
                usable_cpus=usable_cpus(),
                plan=self._open_loop() if self._plan.is_open else None,
            )
        )

    def _open_loop(self) -> OpenLoop:
        span_s = self.duration_s
        return OpenLoop(
            planned=self.planned,
            span_s=span_s,
            waiting=self.waiting,
            achieved_per_s=self.totals.done / span_s if span_s else 0.0,
            samples=self._backlog.samples,
            queued=self._stage.measures.latencies[QUEUED].summary(),
        )

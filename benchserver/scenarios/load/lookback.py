"""The look back at the end of a load: requests that were stored are asked for once more, and read.

A load asks again for what its workload has in common, and stores at once what is not found: a
server that loses chunks would be caught late or never, and one whose workload repeats nothing would
not be read from at all.  So some requests, drawn from all that were stored, are kept until the end.
What is missing then was given up by the server's own counters, or is a failure; what is there is
verified.  These requests are in no figure.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from benchserver.check.judging import judge
from benchserver.check.verdict import Verdict, worst
from benchserver.clock import NS_PER_S
from benchserver.history import Outcome
from benchserver.load.request import Request
from benchserver.scenarios.load.checks import JUDGES, LOOK_BACK
from benchserver.scenarios.load.exchange import Exchange, Setting
from benchserver.scenarios.load.lease import Lease
from benchserver.scenarios.load.records import Missing, RequestRecord
from benchserver.scenarios.load.work import Drawing
from benchserver.tasks import gather_all

_MOST_REQUESTS = 32
_LEAST_REQUESTS = 4
_MOST_BYTES = 1 << 30
"""What is read at the end: this much, or the least number of requests if they are larger."""


class LookBack:
    """The requests of one load that will be asked for again; call `play` once."""

    def __init__(self, setting: Setting, drawing: Drawing, leases: list[Lease]) -> None:
        self._setting = setting
        self._drawing = drawing
        self._leases = leases
        self._kept: list[Request] = []
        self._stored = 0
        self._visible_within_ns = int(setting.config.visible_within_s * NS_PER_S)
        self._draw = random.Random(setting.stage.crews[0].engine.seed)
        fitting = _MOST_BYTES // max(1, drawing.geometry.nbytes)
        self._most = max(_LEAST_REQUESTS, min(_MOST_REQUESTS, fitting))

    def offer(self, request: Request, record: RequestRecord) -> None:
        """Keep a request that was stored, or not: all that were have the same chance."""
        if not record.stores or not record.answered:
            return
        self._stored += 1
        if len(self._kept) < self._most:
            self._kept.append(request)
        elif (place := self._draw.randrange(self._stored)) < self._most:
            self._kept[place] = request

    async def play(self) -> None:
        """Ask for all that were kept, on all leases at once, and judge what comes."""
        ledger, pending = self._setting.stage.book.ledger, iter(self._kept)
        if not self._kept:
            ledger.rule_out(LOOK_BACK, "this run has stored nothing")
            return
        # What a request has in common with others, the last one of the run may have stored.
        visible_ns = self._setting.stage.clock.now_ns() + self._visible_within_ns
        await gather_all(self._serve(lease, pending, visible_ns) for lease in self._leases)

    async def _serve(self, lease: Lease, pending: Iterator[Request], visible_ns: int) -> None:
        book = self._setting.stage.book
        for kept in pending:
            record = await self._ask(lease, kept, visible_ns)
            findings = judge(record, JUDGES)
            book.ledger.add(findings)
            if record.lookup.outcome is Outcome.OK:
                book.ledger.add_probes([LOOK_BACK])
            if worst(findings) is not Verdict.VALID:
                book.reporter.concluded(record.label, findings)

    async def _ask(self, lease: Lease, kept: Request, visible_ns: int) -> RequestRecord:
        """Ask once, and once more when all must be visible if that was too early."""
        record = await self._once(lease, kept)
        if record.missing is not Missing.NOT_VISIBLE:
            return record
        clock = self._setting.stage.clock
        await clock.sleep_ns(max(0, visible_ns - clock.now_ns()))
        return await self._once(lease, kept)

    async def _once(self, lease: Lease, kept: Request) -> RequestRecord:
        exchange = Exchange(self._setting, lease, self._drawing.work(kept), looks_back=True)
        ready_ns = await exchange.prepare()
        return await exchange.run(ready_ns, ready_ns, warmup=False, done=lambda: None)

"""Ping as a scenario: round trips over one connection, one after the other.

Registers nothing and needs no memory, so it runs against a server on any host.
"""

from __future__ import annotations

import itertools
from typing import Any

from benchserver.check.judging import judge
from benchserver.client.connection import CallFailedError
from benchserver.clock import NS_PER_S
from benchserver.errors import one_line
from benchserver.history import Outcome
from benchserver.scenarios.ping.checks import CHECKS, JUDGES, PONG
from benchserver.scenarios.ping.config import PingConfig
from benchserver.scenarios.ping.records import RoundRecord, TripRecord, round_label
from benchserver.scenarios.ping.series import SERIES, count
from benchserver.stage.stage import Stage
from benchserver.stage.traits import Omissions, Traits
from protocol.dialect import Dialect
from protocol.ops import Op


class Ping:
    """GET_CHUNK_SIZE and PING, round after round."""

    def __init__(self, config: PingConfig) -> None:
        self._config = config
        self._numbers = itertools.count() if config.count is None else iter(range(config.count))

    @property
    def traits(self) -> Traits:
        """Return what is known of it before anything is sent."""
        return Traits(name="ping", unit="round", checks=CHECKS, series=SERIES, workers=False)

    def omissions(self, stage: Stage) -> Omissions:
        """Return the checks that this run leaves out, and why."""
        dialect = stage.met.dialect
        if Op.PING in dict(requests(dialect)):
            return Omissions()
        return Omissions(checks={PONG: f"release {dialect.name} has no PING"})

    async def play(self, stage: Stage) -> None:
        """Make the rounds, and conclude each."""
        for number in self._numbers:
            if number:
                await stage.rest_ns(int(self._config.interval_s * NS_PER_S))
            await _round(stage, number)


def requests(dialect: Dialect) -> tuple[tuple[Op, tuple[Any, ...]], ...]:
    """Return the requests of a round and their arguments, as far as a release knows them."""
    ping = (None,) if dialect.pings_name_instances else ()
    asked: tuple[tuple[Op, tuple[Any, ...]], ...] = ((Op.GET_CHUNK_SIZE, ()), (Op.PING, ping))
    return tuple((op, args) for op, args in asked if op in dialect.ops)


async def _round(stage: Stage, number: int) -> None:
    label, trips = round_label(number), []
    for op, args in requests(stage.met.dialect):
        trips.append(trip := await _trip(stage, op, args))
        stage.emit(label, trip)
    if stage.survives:
        await stage.check_answered(label, trips)
    record = RoundRecord(number=number, chunk_tokens=stage.server.chunk_tokens, trips=tuple(trips))
    count(record, stage.measures)
    await stage.conclude(label, judge(record, JUDGES))
    await stage.met.alive.check(trips)


async def _trip(stage: Stage, op: Op, args: tuple[Any, ...]) -> TripRecord:
    began_ns = stage.clock.now_ns()
    outcome, answer, reason = Outcome.OK, 0, ""
    try:
        reply = await stage.met.connection.call(op, *args)
        answer = int(reply.result)
    except CallFailedError as error:
        outcome, reason = Outcome.UNKNOWN, one_line(error.reason)
    return TripRecord(
        name=op.name,
        outcome=outcome,
        began_ns=began_ns,
        ended_ns=stage.clock.now_ns(),
        answer=answer,
        reason=reason,
    )

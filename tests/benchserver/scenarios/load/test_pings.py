"""PING while others load the server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from benchserver.client.connection import CallFailedError, ConnectionLostError
from benchserver.client.scripted import ScriptedConnection, in_turn
from benchserver.clock import NS_PER_MS, NS_PER_S, VirtualClock
from benchserver.scenarios.load.pings import ping_meanwhile
from benchserver.scenarios.load.series import PING
from benchserver.stage.stage import Stage
from benchserver.tasks import cancel_and_wait
from protocol.dialects import V056, dialect_of
from protocol.ops import Op
from tests.benchserver.scenarios.load.conftest import MakeLoad


class Asked:
    """Opens one connection, which answers by a script."""

    def __init__(self, stage: Stage, *answers: Any) -> None:
        script = {Op.PING: in_turn(*answers)}
        clock = cast(VirtualClock, stage.clock)
        self.connection = ScriptedConnection(script, V056, clock=clock, timeout_ns=NS_PER_S)
        self.places: list[str] = []

    def ask(self, _dialect: Any, place: str) -> ScriptedConnection:
        self.places.append(place)
        return self.connection


async def pinged(stage: Stage, asked: Asked, *, for_ns: int, begin_ns: int = 0) -> None:
    task = asyncio.ensure_future(
        ping_meanwhile(replace(stage, connections=cast(Any, asked)), begin_ns)
    )
    await stage.clock.sleep_ns(for_ns)
    await cancel_and_wait([task])


@pytest.mark.asyncio
async def test_a_series_of_its_own_over_a_connection_of_its_own(make_load: MakeLoad) -> None:
    stage = make_load().stage
    asked = Asked(stage, *[True] * 20)
    await pinged(stage, asked, for_ns=1050 * NS_PER_MS, begin_ns=500 * NS_PER_MS)
    summary = stage.measures.latencies[PING].summary()
    assert summary is not None
    assert (len(asked.connection.calls), summary.count, summary.censored) == (10, 6, 0)
    assert asked.places == ["PING under load"]


@pytest.mark.parametrize(
    ("error", "counted"),
    [(CallFailedError(Op.PING, "no"), 3), (ConnectionLostError(Op.PING, "gone"), 1)],
)
@pytest.mark.asyncio
async def test_what_fails_is_censored_and_a_lost_connection_is_left(
    make_load: MakeLoad, error: Exception, counted: int
) -> None:
    stage = make_load().stage
    asked = Asked(stage, True, error, True)
    await pinged(stage, asked, for_ns=350 * NS_PER_MS)
    summary = stage.measures.latencies[PING].summary()
    assert summary is not None
    assert (summary.count, summary.censored) == (counted, counted // 3)


@pytest.mark.asyncio
async def test_a_release_without_ping_is_not_asked(make_load: MakeLoad) -> None:
    stage = make_load().stage
    asked = Asked(stage)
    met = replace(stage.met, dialect=dialect_of("0.4.1"))
    await pinged(replace(stage, met=met), asked, for_ns=NS_PER_S)
    assert not asked.places

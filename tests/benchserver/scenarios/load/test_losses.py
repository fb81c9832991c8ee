"""What the server says of missing chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from benchserver.check.dropped import DroppedAccount
from benchserver.clock import NS_PER_S
from benchserver.scenarios.load.losses import Losses
from benchserver.scenarios.load.records import Missing
from benchserver.stage.stage import Stage
from benchserver.tasks import gather_all
from protocol.counters import Counters
from tests.benchserver.scenarios.load.conftest import MakeLoad


class Telling:
    """A server's own account: what it counts, reading after reading."""

    before = None

    def __init__(self, stage: Stage, readings: Sequence[Counters | None]) -> None:
        self._clock = stage.clock
        self._readings = list(readings)
        self.asked = 0

    async def counters(self, model_name: str) -> Counters | None:
        assert model_name == "bench-server"
        self.asked += 1
        await self._clock.sleep_ns(5_000_000)
        return self._readings.pop(0) if len(self._readings) > 1 else self._readings[0]


def losses_on(stage: Stage, *readings: Counters | None) -> tuple[Losses, Telling]:
    telling = Telling(stage, readings)
    met = replace(stage.met, condition=cast(Any, telling))
    return Losses(replace(stage, met=met), DroppedAccount(Counters(dropped_chunks=5))), telling


def counted(dropped: int = 0, evicted: int = 0, unloaded: int = 0) -> Counters:
    return Counters(dropped_chunks=5 + dropped, evicted_chunks=evicted, unloaded_chunks=unloaded)


@pytest.mark.asyncio
async def test_each_counted_chunk_explains_one_and_the_dropped_come_first(
    make_load: MakeLoad,
) -> None:
    losses, _ = losses_on(make_load().stage, counted(1, 1, 1))
    found = [await losses.explain(may_be_late=False) for _ in range(4)]
    assert found == [
        Missing.DROPPED,
        Missing.EVICTED,
        Missing.UNLOADED,
        Missing.UNEXPLAINED,
    ]


@pytest.mark.asyncio
async def test_what_may_be_late_is_late_unless_it_is_counted(make_load: MakeLoad) -> None:
    losses, telling = losses_on(make_load().stage, counted(1))
    assert await losses.explain(may_be_late=True) is Missing.DROPPED
    assert await losses.explain(may_be_late=True) is Missing.NOT_VISIBLE
    assert telling.asked == 2


@pytest.mark.asyncio
async def test_a_server_may_count_some_moments_later(make_load: MakeLoad) -> None:
    stage = make_load().stage
    losses, telling = losses_on(stage, counted(), counted(), counted(0, 1))
    assert await losses.explain(may_be_late=False) is Missing.EVICTED
    assert telling.asked == 3
    assert NS_PER_S < stage.clock.now_ns() < 2 * NS_PER_S


@pytest.mark.asyncio
async def test_a_server_that_counts_nothing_explains_nothing(make_load: MakeLoad) -> None:
    losses, _ = losses_on(make_load().stage, None)
    assert await losses.explain(may_be_late=False) is Missing.UNTOLD
    assert await losses.told() == "neither /metrics nor /status answers"


@pytest.mark.asyncio
async def test_who_asks_at_once_shares_an_answer(make_load: MakeLoad) -> None:
    losses, telling = losses_on(make_load().stage, counted(0, 9))
    await gather_all(losses.explain(may_be_late=False) for _ in range(6))
    assert telling.asked == 1
    assert await losses.told() == "9 chunks evicted since the run began"

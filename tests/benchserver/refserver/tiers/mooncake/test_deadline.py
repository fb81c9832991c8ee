"""Work with a deadline: its result, its error, or its end before anybody goes on."""

from __future__ import annotations

import asyncio

import pytest

from benchserver.clock import idle
from benchserver.refserver.tiers.mooncake.deadline import within
from benchserver.refserver.tiers.tier import TierError

pytestmark = pytest.mark.usefixtures("leak_free")


@pytest.mark.asyncio
async def test_work_in_time_gives_its_result_or_its_error() -> None:
    async def answer() -> int:
        return 7

    async def fail() -> int:
        raise ValueError("of its own")

    assert await within(5, "it", answer()) == 7
    with pytest.raises(ValueError, match="of its own"):
        await within(5, "it", fail())


@pytest.mark.asyncio
async def test_late_work_is_cancelled_and_has_ended() -> None:
    ended = []

    async def late() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            ended.append(1)

    with pytest.raises(TierError, match=r"the read took longer than 0\.01 s"):
        await within(0.01, "the read", late())
    assert ended


@pytest.mark.asyncio
async def test_a_cancelled_caller_waits_for_the_end_of_the_work() -> None:
    began, may_end, ended = asyncio.Event(), asyncio.Event(), []

    async def stubborn() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            await may_end.wait()
            ended.append(1)

    task = asyncio.ensure_future(within(60, "it", stubborn()))
    await began.wait()
    for _ in range(2):
        task.cancel()
        await idle()
        assert not task.done()
    may_end.set()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert ended

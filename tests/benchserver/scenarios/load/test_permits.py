"""Places among the requests under way."""

from __future__ import annotations

import asyncio

import pytest

from benchserver.clock import idle
from benchserver.scenarios.load.permits import Permits


@pytest.mark.asyncio
async def test_places_say_when_they_were_given_back_and_come_in_order() -> None:
    permits = Permits(2, 5)
    assert [await permits.take(), await permits.take()] == [5, 5]
    assert permits.taken == 2
    first, second = (asyncio.ensure_future(permits.take()) for _ in range(2))
    await idle()
    permits.give(8)
    permits.give(9)
    assert (await first, await second) == (8, 9)
    permits.give(11)
    assert permits.taken == 1
    assert await permits.take() == 11


@pytest.mark.asyncio
async def test_who_is_cancelled_takes_no_place() -> None:
    permits = Permits(1, 0)
    await permits.take()
    waiting, other = (asyncio.ensure_future(permits.take()) for _ in range(2))
    await idle()
    waiting.cancel()
    permits.give(3)
    assert await other == 3
    late = asyncio.ensure_future(permits.take())
    await idle()
    permits.give(4)
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    assert await permits.take() == 4

"""Sleeps of microseconds: never short, with a timerfd and without."""

from __future__ import annotations

import asyncio

import pytest

from benchserver.clock import NS_PER_MS
from benchserver.refserver import fineclock
from benchserver.refserver.fineclock import FineClock
from benchserver.refserver.timerfd import NO_TIMER

pytestmark = pytest.mark.usefixtures("leak_free")
DURATIONS_NS = (-NS_PER_MS, 0, 1, 20_000, 400_000, NS_PER_MS, 3 * NS_PER_MS)


async def sleeps_are_never_short() -> None:
    clock = FineClock()

    async def sleep(duration_ns: int) -> None:
        before_ns = clock.now_ns()
        await clock.sleep_ns(duration_ns)
        assert clock.now_ns() - before_ns >= duration_ns

    for _ in range(5):
        await asyncio.gather(*(sleep(duration_ns) for duration_ns in DURATIONS_NS))
    for duration_ns in DURATIONS_NS:
        await sleep(duration_ns)


@pytest.mark.asyncio
async def test_fine_sleeps_are_never_short() -> None:
    await sleeps_are_never_short()


@pytest.mark.asyncio
async def test_without_a_timerfd_the_loop_must_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fineclock, "open_timer", lambda: NO_TIMER)
    await sleeps_are_never_short()


@pytest.mark.asyncio
async def test_cancelled_sleepers_do_not_keep_others_from_waking() -> None:
    clock = FineClock()
    cancelled = [asyncio.ensure_future(clock.sleep_ns(NS_PER_MS)) for _ in range(3)]
    others = [asyncio.ensure_future(clock.sleep_ns(2 * NS_PER_MS)) for _ in range(3)]
    await asyncio.sleep(0)
    for task in cancelled:
        task.cancel()
    await asyncio.wait_for(asyncio.gather(*others), 30)
    # The one clock serves the next loop too, and leaves no descriptor in either.
    alone = asyncio.ensure_future(clock.sleep_ns(3600 * 1000 * NS_PER_MS))
    await asyncio.sleep(0)
    alone.cancel()
    await asyncio.wait([alone])

"""The real clock moves by itself, the virtual one when told."""

from __future__ import annotations

import asyncio

import pytest

from benchserver.clock import NS_PER_MS, NS_PER_S, Clock, RealClock, VirtualClock


def test_units() -> None:
    assert NS_PER_S == 10**9
    assert NS_PER_MS == 10**6


def test_the_real_clock_sleeps_at_least_as_long_as_asked() -> None:
    clock = RealClock()
    before = clock.now_ns()
    asyncio.run(clock.sleep_ns(2 * NS_PER_MS))
    # The event loop rounds to the resolution of its own clock.
    assert clock.now_ns() - before >= 1_900_000
    assert isinstance(clock.now_ns(), int)


@pytest.mark.parametrize("clock", [RealClock(), VirtualClock(5)])
@pytest.mark.parametrize("duration_ns", [0, -1, -(10**18)])
def test_nothing_to_sleep(clock: Clock, duration_ns: int) -> None:
    before = clock.now_ns()
    asyncio.run(asyncio.wait_for(clock.sleep_ns(duration_ns), 5))
    assert clock.now_ns() >= before


def test_the_virtual_clock_moves_by_what_is_slept() -> None:
    clock = VirtualClock(100)
    asyncio.run(clock.sleep_ns(365 * 86_400 * NS_PER_S))
    assert clock.now_ns() == 100 + 365 * 86_400 * NS_PER_S
    asyncio.run(clock.sleep_ns(-5))
    assert clock.now_ns() == 100 + 365 * 86_400 * NS_PER_S


def test_virtual_sleep_lets_others_run() -> None:
    async def main() -> list[str]:
        order: list[str] = []

        async def other() -> None:
            order.append("other")

        task = asyncio.ensure_future(other())
        await VirtualClock().sleep_ns(1)
        order.append("sleeper")
        await task
        return order

    assert asyncio.run(main()) == ["other", "sleeper"]

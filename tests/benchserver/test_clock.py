"""The real clock moves by itself, the virtual one when everybody sleeps or a test says so."""

from __future__ import annotations

import asyncio
import threading

import pytest

from benchserver.clock import NS_PER_MS, NS_PER_S, Clock, RealClock, VirtualClock, idle


def test_units() -> None:
    assert NS_PER_S == 10**9
    assert NS_PER_MS == 10**6


@pytest.mark.asyncio
async def test_the_real_clock_sleeps_at_least_as_long_as_asked() -> None:
    clock = RealClock()
    before = clock.now_ns()
    await clock.sleep_ns(2 * NS_PER_MS)
    # The event loop rounds to the resolution of its own clock.
    assert clock.now_ns() - before >= 1_900_000
    assert isinstance(clock.now_ns(), int)


@pytest.mark.asyncio
@pytest.mark.parametrize("clock", [RealClock(), VirtualClock(5), VirtualClock(5, by_hand=True)])
@pytest.mark.parametrize("duration_ns", [0, -1, -(10**18)])
async def test_nothing_to_sleep(clock: Clock, duration_ns: int) -> None:
    before = clock.now_ns()
    await asyncio.wait_for(clock.sleep_ns(duration_ns), 5)
    assert clock.now_ns() >= before


@pytest.mark.asyncio
async def test_the_virtual_clock_moves_by_what_is_slept() -> None:
    clock = VirtualClock(100)
    await clock.sleep_ns(365 * 86_400 * NS_PER_S)
    assert clock.now_ns() == 100 + 365 * 86_400 * NS_PER_S
    await clock.sleep_ns(-5)
    assert clock.now_ns() == 100 + 365 * 86_400 * NS_PER_S


@pytest.mark.asyncio
@pytest.mark.parametrize("duration_ns", [0, 1])
async def test_virtual_sleep_lets_others_run(duration_ns: int) -> None:
    order: list[str] = []

    async def other() -> None:
        order.append("other")

    task = asyncio.ensure_future(other())
    await VirtualClock().sleep_ns(duration_ns)
    order.append("sleeper")
    await task
    assert order == ["other", "sleeper"]


class Diary:
    """Who woke when."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.entries: list[tuple[str, int]] = []

    async def sleep(self, name: str, *durations_ns: int) -> None:
        for duration_ns in durations_ns:
            await self.clock.sleep_ns(duration_ns)
            self.entries.append((name, self.clock.now_ns()))

    def sleeper(self, name: str, *durations_ns: int) -> asyncio.Task[None]:
        return asyncio.create_task(self.sleep(name, *durations_ns))


@pytest.mark.asyncio
async def test_any_number_sleep_and_each_wakes_at_its_moment() -> None:
    diary = Diary(VirtualClock(1000))
    await asyncio.gather(
        diary.sleep("a", 30, 30), diary.sleep("b", 20, 20, 20, 20), diary.sleep("c", 10**12)
    )
    assert diary.entries == [
        ("b", 1020),
        ("a", 1030),
        ("b", 1040),
        # Both are due at 1060: "a" fell asleep at 1030, "b" at 1040.
        ("a", 1060),
        ("b", 1060),
        ("b", 1080),
        ("c", 1000 + 10**12),
    ]


@pytest.mark.asyncio
async def test_those_due_together_wake_in_the_order_of_falling_asleep() -> None:
    diary = Diary(VirtualClock())
    names = [str(number) for number in range(100)]
    await asyncio.gather(*(diary.sleep(name, 5) for name in names))
    assert diary.entries == [(name, 5) for name in names]


@pytest.mark.asyncio
async def test_the_next_of_the_same_moment_wakes_when_the_one_before_can_do_no_more() -> None:
    clock, order = VirtualClock(), list[str]()

    async def first() -> None:
        await clock.sleep_ns(5)
        for turn in range(50):
            order.append(f"first {turn}")
            await asyncio.sleep(0)

    async def second() -> None:
        await clock.sleep_ns(5)
        order.append("second")

    await asyncio.gather(first(), second())
    assert order == [*(f"first {turn}" for turn in range(50)), "second"]


@pytest.mark.asyncio
async def test_time_stands_still_while_anything_can_run() -> None:
    clock, seen = VirtualClock(), set[int]()

    async def busy() -> None:
        for _ in range(1000):
            seen.add(clock.now_ns())
            await asyncio.sleep(0)

    await asyncio.gather(busy(), clock.sleep_ns(NS_PER_S))
    assert seen == {0}
    assert clock.now_ns() == NS_PER_S


@pytest.mark.asyncio
async def test_a_sleeper_that_is_cancelled_moves_no_time() -> None:
    diary = Diary(VirtualClock())
    short, long = diary.sleeper("short", 10), diary.sleeper("long", 20)
    await asyncio.sleep(0)
    assert diary.clock.sleeping == 2
    short.cancel()
    await long
    assert diary.entries == [("long", 20)]
    last = diary.sleeper("last", 10**15)
    await asyncio.sleep(0)
    last.cancel()
    await asyncio.gather(last, return_exceptions=True)
    await idle()
    assert diary.clock.now_ns() == 20
    assert diary.clock.sleeping == 0


@pytest.mark.asyncio
async def test_two_clocks_on_one_loop_do_not_wait_for_each_other() -> None:
    one, other = Diary(VirtualClock()), Diary(VirtualClock(7))
    await asyncio.wait_for(
        asyncio.gather(one.sleep("one", 5, 5), other.sleep("other", 10**9, 10**9)), 20
    )
    assert one.entries == [("one", 5), ("one", 10)]
    assert other.entries == [("other", 10**9 + 7), ("other", 2 * 10**9 + 7)]


@pytest.mark.asyncio
async def test_by_hand_time_stands_until_it_is_moved() -> None:
    diary = Diary(VirtualClock(by_hand=True))
    sleepers = [diary.sleeper("a", 10, 10, 100), diary.sleeper("b", 15)]
    await diary.clock.until_asleep(2)
    await idle()
    assert diary.entries == []
    await diary.clock.move_ns(9)
    assert (diary.clock.now_ns(), diary.entries) == (9, [])
    await diary.clock.move_ns(20)
    assert diary.clock.now_ns() == 29
    assert diary.entries == [("a", 10), ("b", 15), ("a", 20)]
    assert diary.clock.sleeping == 1
    await diary.clock.move_ns(91)
    assert diary.entries[-1] == ("a", 120)
    await asyncio.gather(*sleepers)


@pytest.mark.asyncio
async def test_moving_lets_those_fall_asleep_first_who_are_about_to() -> None:
    diary = Diary(VirtualClock(by_hand=True))
    sleeper = diary.sleeper("late", 10)
    await diary.clock.move_ns(10)
    assert diary.entries == [("late", 10)]
    await sleeper


@pytest.mark.asyncio
async def test_a_sleeper_that_comes_from_a_thread_is_waited_for() -> None:
    clock, go = VirtualClock(by_hand=True), threading.Event()

    async def work_and_sleep() -> None:
        await asyncio.get_running_loop().run_in_executor(None, go.wait)
        await clock.sleep_ns(1)

    working = asyncio.create_task(work_and_sleep())
    await idle()
    assert clock.sleeping == 0
    go.set()
    await asyncio.wait_for(clock.until_asleep(1), 20)
    await clock.move_ns(1)
    await working


@pytest.mark.asyncio
async def test_idle_comes_after_all_that_can_run() -> None:
    order: list[str] = []

    async def busy(name: str, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        order.append(name)

    tasks = [asyncio.create_task(busy("long", 100)), asyncio.create_task(busy("short", 3))]
    await idle()
    assert order == ["short", "long"]
    await asyncio.gather(*tasks)

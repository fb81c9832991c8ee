"""Children never outlive their caller, however it ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import pytest

from benchserver.tasks import (
    Finishing,
    OutOfTimeError,
    Patience,
    TaskScope,
    Threads,
    cancel_and_wait,
    gather_all,
    in_thread,
    run_beside,
    wait_first,
    within,
)


class Probe:
    """Counts children that started and ended."""

    def __init__(self) -> None:
        self.running = 0
        self.started = asyncio.Event()

    async def wait(self) -> None:
        self.running += 1
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            # Ending takes a few turns of the loop, as real cleaning up does.
            for _ in range(3):
                await asyncio.sleep(0)
            self.running -= 1


async def value(result: int, turns: int) -> int:
    for _ in range(turns):
        await asyncio.sleep(0)
    return result


@pytest.mark.asyncio
async def test_results_come_in_order_of_the_coroutines() -> None:
    assert await gather_all(value(n, turns=5 - n) for n in range(5)) == [0, 1, 2, 3, 4]


@pytest.mark.asyncio
async def test_nothing_to_gather() -> None:
    nothing: list[Coroutine[Any, Any, int]] = []
    await cancel_and_wait([])
    assert await gather_all(nothing) == []


@pytest.mark.asyncio
async def test_the_first_failure_ends_the_others() -> None:
    async def fail(after: Probe) -> None:
        await after.started.wait()
        raise KeyError("boom")

    probe = Probe()
    with pytest.raises(KeyError, match="boom"):
        await gather_all([probe.wait(), fail(probe), probe.wait()])
    assert probe.running == 0


@pytest.mark.asyncio
async def test_a_cancelled_caller_ends_its_children_first() -> None:
    probe = Probe()
    caller = asyncio.ensure_future(gather_all([probe.wait(), probe.wait()]))
    await probe.started.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert probe.running == 0


@pytest.mark.asyncio
async def test_cancel_and_wait_drops_results_and_errors() -> None:
    async def stubborn() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise OSError("while ending") from error
        return 0

    probe = Probe()
    tasks = [asyncio.ensure_future(c) for c in (probe.wait(), stubborn(), value(1, 0))]
    await probe.started.wait()
    await cancel_and_wait(tasks)
    assert all(task.done() for task in tasks)
    assert probe.running == 0


@pytest.mark.asyncio
async def test_work_in_a_thread_returns_and_raises() -> None:
    with ThreadPoolExecutor(1) as executor:
        assert await in_thread(executor, threading.get_ident) != threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            await in_thread(executor, lambda: 1 // 0)


@pytest.mark.asyncio
async def test_a_cancelled_caller_leaves_its_thread_to_end() -> None:
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        release.wait(30)
        ended.set()

    with ThreadPoolExecutor(1) as executor:
        caller = asyncio.ensure_future(in_thread(executor, work))
        assert await asyncio.to_thread(begun.wait, 30)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert not ended.is_set()
        release.set()
    assert ended.is_set()


@pytest.mark.asyncio
async def test_finishing_outlives_a_cancelled_caller() -> None:
    seen: list[str] = []
    gate, finishing = asyncio.Event(), Finishing()

    async def work() -> None:
        await gate.wait()
        seen.append("done")

    caller = asyncio.ensure_future(finishing.run(work()))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    assert seen == []
    gate.set()
    await finishing.wait()
    assert seen == ["done"]


@pytest.mark.asyncio
async def test_finishing_gives_results_and_errors() -> None:
    async def fail() -> None:
        raise ValueError("no")

    finishing = Finishing()
    assert await finishing.run(asyncio.sleep(0, "yes")) == "yes"
    with pytest.raises(ValueError, match="no"):
        await finishing.run(fail())
    await finishing.wait()


async def for_ever(probe: Probe) -> NoReturn:
    await probe.wait()
    raise AssertionError("nobody ends it")


async def broken(error: Exception) -> NoReturn:
    await asyncio.sleep(0)
    raise error


@pytest.mark.asyncio
async def test_what_runs_beside_ends_with_the_main_task() -> None:
    probe = Probe()
    assert await run_beside(value(7, turns=9), for_ever(probe)) == 7
    assert probe.started.is_set()
    assert probe.running == 0


@pytest.mark.asyncio
async def test_an_error_beside_ends_the_main_task() -> None:
    probe = Probe()
    with pytest.raises(ValueError, match="beside"):
        await run_beside(probe.wait(), broken(ValueError("beside")))
    assert probe.running == 0


@pytest.mark.asyncio
async def test_an_error_of_the_main_task_ends_what_runs_beside() -> None:
    probe = Probe()
    with pytest.raises(ValueError, match="main"):
        await run_beside(broken(ValueError("main")), for_ever(probe))
    assert probe.running == 0


@pytest.mark.asyncio
async def test_a_cancelled_caller_ends_both() -> None:
    main, beside = Probe(), Probe()

    task = asyncio.ensure_future(run_beside(main.wait(), for_ever(beside)))
    await main.started.wait()
    await beside.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (main.running, beside.running) == (0, 0)


def test_threads_say_whether_any_is_at_work() -> None:
    release, threads = threading.Event(), Threads(1)
    assert threads.idle_within(0)
    running = threads.submit(release.wait, 30)
    waiting = threads.submit(int, "7")
    dropped = threads.submit(int)
    dropped.cancel()
    assert not threads.idle_within(0.01)
    release.set()
    assert threads.idle_within(30)
    assert (running.result(), waiting.result()) == (True, 7)
    threads.submit(int, "x")  # an error is an end, too
    assert threads.idle_within(30)
    threads.shutdown()


@pytest.mark.asyncio
async def test_work_that_its_caller_gave_up_is_at_work_still() -> None:
    release, begun, threads = threading.Event(), threading.Event(), Threads(1)

    def work() -> None:
        begun.set()
        release.wait(30)

    caller = asyncio.ensure_future(in_thread(threads, work))
    assert await asyncio.to_thread(begun.wait, 30)
    await cancel_and_wait([caller])
    threads.shutdown(wait=False, cancel_futures=True)
    assert not threads.idle_within(0.01)
    release.set()
    assert threads.idle_within(30)


def test_patience_ends_at_its_deadline_after_a_moment_of_listening() -> None:
    patience = Patience(10.0, 100.0)
    assert patience.look_at_s == 109.75
    assert not patience.over(109.76)
    assert patience.look_at_s == 110.0
    assert patience.over(110.01)
    assert patience.ours == ""


def test_a_short_wait_has_a_short_moment() -> None:
    patience = Patience(0.1, 0.0)
    assert patience.look_at_s == pytest.approx(0.075)
    assert not patience.over(0.08)
    assert patience.over(0.1)


@pytest.mark.parametrize("woke_s", [109.9, 115.0])
def test_patience_goes_on_after_a_standstill(woke_s: float) -> None:
    patience = Patience(10.0, 100.0)
    assert not patience.over(woke_s)
    assert patience.look_at_s == max(110.0, woke_s + 0.25)
    assert patience.over(patience.look_at_s + 0.01)
    assert f"stood still for {woke_s - 109.75:.1f} s of that time" in patience.ours


def test_a_standstill_at_the_very_end() -> None:
    patience = Patience(10.0, 100.0)
    assert not patience.over(109.75)
    assert not patience.over(130.0)
    assert patience.look_at_s == 130.25
    assert patience.over(130.25)


def test_a_process_without_a_cpu_gives_up_too() -> None:
    patience, now_s, looks = Patience(1.0, 0.0), 0.0, 0
    while not patience.over(now_s):
        now_s, looks = patience.look_at_s + 1.0, looks + 1
    assert looks <= 14


@pytest.mark.asyncio
async def test_within_its_time() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert await within(work(), 30.0) == 7


@pytest.mark.usefixtures("never_late")
@pytest.mark.asyncio
async def test_out_of_time() -> None:
    probe = Probe()
    with pytest.raises(OutOfTimeError, match=r"^out of time$") as caught:
        await within(probe.wait(), 0.02)
    assert probe.running == 0
    assert caught.value.ours == ""


@pytest.mark.asyncio
async def test_what_came_while_this_process_stood_still_is_in_time() -> None:
    come = asyncio.Event()

    async def work() -> int:
        await come.wait()
        return 7

    def stand_still() -> None:
        time.sleep(0.4)
        # As a message that another thread fetches once it runs again.
        asyncio.get_running_loop().call_later(0.002, come.set)

    asyncio.get_running_loop().call_soon(stand_still)
    assert await within(work(), 0.1) == 7


@pytest.mark.asyncio
async def test_the_first_of_several() -> None:
    event = asyncio.Event()
    slow, quick = asyncio.ensure_future(event.wait()), asyncio.ensure_future(asyncio.sleep(0))
    await wait_first((slow, quick), 30.0)
    assert (slow.done(), quick.done()) == (False, True)
    assert (await wait_first((slow,), 0.01)).ours == ""
    assert not slow.done()
    await cancel_and_wait([slow])


@pytest.mark.asyncio
async def test_an_error_within_its_time() -> None:
    async def fail() -> None:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        await within(fail(), 30.0)


@pytest.mark.asyncio
async def test_a_scope_cancels_its_tasks_and_waits_for_them() -> None:
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async with TaskScope() as scope:
        scope.start(work("a"))
        scope.start(work("b"))
        await asyncio.sleep(0)
    assert sorted(ended) == ["a", "b"]


@pytest.mark.asyncio
async def test_a_scope_raises_the_first_failure() -> None:
    async def fail() -> None:
        raise LookupError("first")

    async def fail_in_a_scope() -> None:
        async with TaskScope() as scope:
            scope.start(fail())
            await scope.failure

    with pytest.raises(LookupError, match="first"):
        await fail_in_a_scope()

"""One thread that waits for many ends."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Iterator

import pytest

from benchserver.clock import NS_PER_MS, NS_PER_S
from benchserver.refserver.gpu.stream import STOP_WITHIN_NS
from benchserver.refserver.gpu.watch import Watcher
from benchserver.refserver.refusal import RefusalError

WITHIN_S = 20.0


@pytest.fixture
def stopping() -> threading.Event:
    """Give what tells a watcher that its server stops."""
    return threading.Event()


@pytest.fixture
def watcher(stopping: threading.Event) -> Iterator[Watcher]:
    """Give a watcher that has ended when its test has."""
    watcher = Watcher(stopping, lambda: math.inf)
    yield watcher
    stopping.set()
    assert watcher.close(WITHIN_S)


def never() -> bool:
    return False


@pytest.mark.asyncio
async def test_any_number_of_waits_that_never_end_keep_no_other_waiting(
    watcher: Watcher, stopping: threading.Event
) -> None:
    before = threading.active_count()
    stuck = [asyncio.ensure_future(watcher.ended(never)) for _ in range(500)]
    await asyncio.sleep(0)
    late = threading.Event()
    waiting = asyncio.ensure_future(watcher.ended(late.is_set))
    assert await watcher.ended(lambda: True)
    assert threading.active_count() == before + 1
    late.set()
    assert await waiting
    assert not any(task.done() for task in stuck)
    start_ns = time.monotonic_ns()
    stopping.set()
    assert not any(await asyncio.gather(*stuck))
    took_ns = time.monotonic_ns() - start_ns
    assert took_ns + 50 * NS_PER_MS >= STOP_WITHIN_NS  # and `play` waits no longer than that


@pytest.mark.asyncio
async def test_a_wait_has_a_deadline_and_asks_once_at_least(
    watcher: Watcher, stopping: threading.Event
) -> None:
    asked: list[int] = []

    def count() -> bool:
        asked.append(1)
        return False

    assert not await watcher.ended(count, within_ns=0)
    assert len(asked) == 1
    assert await watcher.ended(lambda: True, within_ns=0)
    start_ns = time.monotonic_ns()
    assert not await watcher.ended(never, within_ns=NS_PER_S // 20)
    assert time.monotonic_ns() - start_ns >= NS_PER_S // 20


@pytest.mark.asyncio
@pytest.mark.parametrize("error", [RefusalError("the device failed"), KeyError("a bug")])
async def test_an_error_is_raised_where_somebody_waits_for_it(
    watcher: Watcher, stopping: threading.Event, error: Exception
) -> None:
    def fail() -> bool:
        raise error

    other = asyncio.ensure_future(watcher.ended(never, within_ns=NS_PER_S // 20))
    with pytest.raises(type(error)):
        await watcher.ended(fail)
    assert not await other
    assert await watcher.ended(lambda: True)


@pytest.mark.asyncio
async def test_closed_it_waits_for_nothing(watcher: Watcher, stopping: threading.Event) -> None:
    stuck = asyncio.ensure_future(watcher.ended(never))
    await asyncio.sleep(0)
    assert watcher.close(WITHIN_S)
    assert not await stuck
    with pytest.raises(RefusalError, match="the server is stopping"):
        await watcher.ended(lambda: True)
    assert Watcher(threading.Event(), lambda: math.inf).close(0)


@pytest.mark.asyncio
async def test_a_thread_that_is_stuck_in_cuda_is_given_up() -> None:
    release, begun = threading.Event(), threading.Event()

    def stuck() -> bool:
        begun.set()
        return release.wait(WITHIN_S)

    left_s = [math.inf]
    watcher = Watcher(threading.Event(), lambda: left_s[0])
    waiting = asyncio.ensure_future(watcher.ended(stuck))
    assert await asyncio.to_thread(begun.wait, WITHIN_S)
    waiting.cancel()
    assert not (await asyncio.wait([waiting], timeout=0.05))[0]
    left_s[0] = 0.0
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, WITHIN_S)
    assert not watcher.close(0)
    release.set()
    assert watcher.close(WITHIN_S)

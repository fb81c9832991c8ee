"""TierThreads for bytes: results, errors, cancellation, the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from benchserver.refserver.tiers.threads import TierThreads

pytestmark = pytest.mark.usefixtures("leak_free")


@pytest_asyncio.fixture
async def threads() -> AsyncIterator[TierThreads]:
    """Give one thread that has ended when its test has."""
    threads = TierThreads(1, "test")
    try:
        yield threads
    finally:
        await threads.close()
        await threads.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("test")]


@pytest.mark.asyncio
async def test_results_and_errors_come_back(threads: TierThreads) -> None:
    assert await threads.run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await threads.run(divmod, 7, 0)


@pytest.mark.asyncio
@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancelled_call_waits_for_what_runs_however_often_it_is_cancelled(
    threads: TierThreads, fails: bool
) -> None:
    began, go_on = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        assert go_on.wait(60)
        if fails:
            raise ValueError

    task = asyncio.ensure_future(threads.run(work))
    assert await asyncio.to_thread(began.wait, 60)
    for _ in range(5):
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
    go_on.set()
    await asyncio.wait([task])
    assert task.cancelled()


@pytest.mark.asyncio
async def test_a_cancelled_call_that_has_not_begun_never_does(threads: TierThreads) -> None:
    go_on, ran = threading.Event(), list[int]()

    busy = asyncio.ensure_future(threads.run(go_on.wait, 60))
    await asyncio.sleep(0)
    queued = asyncio.ensure_future(threads.run(ran.append, 1))
    await asyncio.sleep(0)
    queued.cancel()
    await asyncio.wait([queued])
    assert queued.cancelled()
    assert not busy.done()
    go_on.set()
    assert await busy
    await threads.close()
    assert not ran


@pytest.mark.asyncio
async def test_closing_waits_for_what_runs(threads: TierThreads) -> None:
    ended = list[int]()

    go_on = threading.Event()

    def work() -> None:
        assert go_on.wait(60)
        ended.append(1)

    task = asyncio.ensure_future(threads.run(work))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(threads.close())
    await asyncio.sleep(0)
    assert not closing.done()
    go_on.set()
    await closing
    assert ended == [1]
    await task

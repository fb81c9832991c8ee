"""Copies in threads: cancelled, cancelled twice, never begun."""

from __future__ import annotations

import asyncio
import threading

import pytest

from benchserver.refserver.copier import MAX_THREADS, Copier


@pytest.mark.asyncio
async def test_a_cancelled_copy_returns_when_its_thread_has_ended() -> None:
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    def copy() -> None:
        started.set()
        release.wait(10)
        ended.set()

    copier = Copier()
    task = asyncio.create_task(copier.run(copy))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=0.05)
    assert not done
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    copier.close()


@pytest.mark.asyncio
async def test_a_copy_cancelled_twice_still_waits_for_its_thread() -> None:
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    def copy() -> None:
        started.set()
        release.wait(10)
        ended.set()

    copier = Copier()
    task = asyncio.create_task(copier.run(copy))
    await asyncio.to_thread(started.wait, 10)
    for _ in range(3):
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=0.02)
        assert not done
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    copier.close()


@pytest.mark.asyncio
async def test_a_copy_that_is_cancelled_before_it_begins_never_does() -> None:
    release, late = threading.Event(), threading.Event()

    copier = Copier()
    running = [asyncio.create_task(copier.run(release.wait, 10)) for _ in range(MAX_THREADS)]
    await asyncio.sleep(0)
    waiting = asyncio.create_task(copier.run(late.set))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, 5)
    release.set()
    await asyncio.gather(*running)
    copier.close()
    assert not late.is_set()


@pytest.mark.asyncio
async def test_a_copier_has_the_threads_that_it_was_given() -> None:
    copier = Copier(2, name="refserver-test")
    both = threading.Barrier(2, timeout=5)
    names: list[str] = []

    def meet() -> None:
        names.append(threading.current_thread().name)
        both.wait()

    await asyncio.gather(copier.run(meet), copier.run(meet))
    copier.close()
    assert sorted(names) == ["refserver-test_0", "refserver-test_1"]

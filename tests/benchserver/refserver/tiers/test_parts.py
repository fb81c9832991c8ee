"""The small parts: names, LRU, locks by name, threads, the fine clock."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from benchserver.clock import NS_PER_MS
from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.tiers.fs.keylocks import KeyLocks
from benchserver.refserver.tiers.keyname import NAME, key_bytes, name_of
from benchserver.refserver.tiers.lru import Lru
from benchserver.refserver.tiers.mock import fineclock
from benchserver.refserver.tiers.mock.fineclock import FineClock
from benchserver.refserver.tiers.mock.timerfd import NO_TIMER
from benchserver.refserver.tiers.threads import Threads

pytestmark = pytest.mark.usefixtures("leak_free")

KEY = ObjectKey(b"\x01\x02", "model", 12, 3, "salt", 4)


def test_a_name_never_changes() -> None:
    """Files of an older server are found again: these bytes were written down by hand."""
    assert key_bytes(KEY).hex() == (
        "000000020102000000056d6f64656c00000002313200000001330000000473616c740000000134"
    )
    # b2sum -l 128 of the same bytes.
    assert name_of(key_bytes(KEY)) == "f9d26d7a6080e29717491b0ba3d81c8d"
    assert NAME.fullmatch(name_of(b""))


keys = st.builds(
    ObjectKey,
    st.binary(max_size=3),
    st.text("a1\ud800\0", max_size=3),
    st.integers(0, 12),
    st.integers(0, 12),
    st.text("a1\ud800\0", max_size=3),
    st.integers(0, 12),
)


@given(keys, keys)
def test_only_equal_keys_have_equal_bytes(one: ObjectKey, other: ObjectKey) -> None:
    assert (key_bytes(one) == key_bytes(other)) == (one == other)
    assert key_bytes(one) == key_bytes(replace(one))


def test_lru() -> None:
    held: Lru[str, int] = Lru()
    assert held.oldest() is None
    assert held.use("a") is None
    assert held.drop("a") is None
    for number, name in enumerate("abc"):
        assert held.put(name, number, 10) is None
    assert held.use("a") == 0
    assert held.put("b", 7, 5) == 1
    assert (held.oldest(), held.used_bytes, len(held)) == ("c", 25, 3)
    assert "c" in held
    assert held.evict_to(25) == []
    assert held.evict_to(24) == [("c", 2)]
    assert held.drop("b") == 7
    assert held.used_bytes == 10
    assert held.evict_to(0) == [("a", 0)]
    assert held.used_bytes == len(held) == 0


@pytest.mark.asyncio
async def test_names_are_locked_one_by_one_and_forgotten() -> None:
    locks, order = KeyLocks(), list[str]()

    async def hold(name: str, label: str, turns: int) -> None:
        async with locks.of(name):
            order.append(label)
            for _ in range(turns):
                await asyncio.sleep(0)
            order.append(label)

    jobs = [asyncio.ensure_future(hold("a", "1", 5)), asyncio.ensure_future(hold("a", "2", 5))]
    waiting = asyncio.ensure_future(hold("a", "never", 5))
    jobs.append(asyncio.ensure_future(hold("b", "3", 1)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(*jobs)
    assert order == ["1", "3", "3", "1", "2", "2"]
    assert not len(locks)


@pytest_asyncio.fixture
async def threads() -> AsyncIterator[Threads]:
    """Give one thread that has ended when its test has."""
    threads = Threads(1, "test")
    try:
        yield threads
    finally:
        await threads.close()
        await threads.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("test")]


@pytest.mark.asyncio
async def test_results_and_errors_come_back(threads: Threads) -> None:
    assert await threads.run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await threads.run(divmod, 7, 0)


@pytest.mark.asyncio
@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancelled_call_waits_for_what_runs_however_often_it_is_cancelled(
    threads: Threads, fails: bool
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
async def test_a_cancelled_call_that_has_not_begun_never_does(threads: Threads) -> None:
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
async def test_closing_waits_for_what_runs(threads: Threads) -> None:
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

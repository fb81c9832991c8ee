"""The mock store's costs to the nanosecond, its order, its capacity, and what it keeps."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from benchserver.clock import NS_PER_MS, Clock, VirtualClock
from benchserver.refserver.tiers.config import GB, MockConfig
from benchserver.refserver.tiers.mock import tier as mock
from benchserver.refserver.tiers.mock.blobs import Blob
from benchserver.refserver.tiers.mock.tier import MockTier
from benchserver.refserver.tiers.tier import TierError, TierMissError
from tests.benchserver.refserver.tiers.conformance import content, expect, get, key

KB = 1000

CONFIG = MockConfig(
    capacity_bytes=GB,
    latency_ns=3 * NS_PER_MS,
    read_bytes_per_s=1000 * KB,
    write_bytes_per_s=500 * KB,
)
"""A kilobyte takes 1 ms to read and 2 ms to write."""


@asynccontextmanager
async def opened(clock: Clock, config: MockConfig = CONFIG) -> AsyncIterator[MockTier]:
    tier = MockTier(config, clock)
    try:
        yield tier
    finally:
        await tier.close()


async def fill(tier: MockTier, *numbers: int, nbytes: int = 1000) -> None:
    for number in numbers:
        await tier.write(key(number), content(number, nbytes))
    await tier.flush()


async def move_to(clock: VirtualClock, now_ns: int) -> None:
    await clock.move_ns(now_ns - clock.now_ns())


async def elapsed_ns(clock: VirtualClock, call: Awaitable[object]) -> int:
    before_ns = clock.now_ns()
    await call
    return clock.now_ns() - before_ns


@pytest.mark.asyncio
async def test_a_probe_costs_the_latency_a_key_up_to_the_first_miss() -> None:
    clock = VirtualClock()
    async with opened(clock) as tier:
        await fill(tier, 0, 1, 2, 4)
        for numbers, asked in (((0,), 1), ((9,), 1), ((0, 1, 2), 3), ((0, 1, 3, 4), 3)):
            keys = [key(number) for number in numbers]
            spent_ns = await elapsed_ns(clock, tier.probe(keys))
            assert spent_ns == asked * 3 * NS_PER_MS, numbers


@pytest.mark.asyncio
async def test_a_probe_sees_what_is_there_at_its_end() -> None:
    clock = VirtualClock(by_hand=True)
    async with opened(clock, replace(CONFIG, capacity_bytes=2500)) as tier:
        await tier.write(key(0), content(0, 1000))
        await move_to(clock, 2 * NS_PER_MS)
        probe = asyncio.ensure_future(tier.probe([key(0), key(1)]))
        await clock.until_asleep(1)
        await tier.write(key(2), content(2, 2000))
        await move_to(clock, 8 * NS_PER_MS)
        assert await probe == 0


@pytest.mark.asyncio
async def test_reads_cost_their_bytes_and_misses_nothing() -> None:
    clock = VirtualClock()
    async with opened(clock) as tier:
        await fill(tier, 1, nbytes=5000)
        before_ns = clock.now_ns()
        with pytest.raises(TierMissError):
            await get(tier, key(9), 5000)
        assert clock.now_ns() == before_ns
        await expect(tier, key(1), content(1, 5000))
        assert clock.now_ns() - before_ns == (3 + 5) * NS_PER_MS


class LateClock(VirtualClock):
    """Every sleep is 0.7 ms too long."""

    async def sleep_ns(self, duration_ns: int) -> None:
        await super().sleep_ns(duration_ns + 7 * NS_PER_MS // 10)


@pytest.mark.asyncio
async def test_late_wakeups_do_not_add_up() -> None:
    clock = LateClock()
    async with opened(clock) as tier:
        await fill(tier, 1)
        before_ns = clock.now_ns()
        for _ in range(100):
            await get(tier, key(1), 1000)
        assert clock.now_ns() - before_ns == 100 * NS_PER_MS + 7 * NS_PER_MS // 10


@pytest.mark.asyncio
async def test_a_put_is_acknowledged_when_queued_and_visible_when_through() -> None:
    clock = VirtualClock(by_hand=True)
    async with opened(clock, replace(CONFIG, latency_ns=0)) as tier:
        await tier.write(key(1), content(1, 1000))
        await tier.write(key(2), content(2, 1000))
        assert clock.now_ns() == 0
        assert (tier.stats.objects, tier.stats.queued) == (0, 2)
        for now_ns, there in (
            (2 * NS_PER_MS - 1, 0),
            (2 * NS_PER_MS, 1),
            (4 * NS_PER_MS - 1, 1),
            (4 * NS_PER_MS, 2),
        ):
            await move_to(clock, now_ns)
            assert (tier.stats.objects, tier.stats.queued) == (there, 2 - there)


@pytest.mark.asyncio
async def test_a_flush_takes_what_the_queue_takes() -> None:
    clock = VirtualClock()
    async with opened(clock) as tier:
        for number in range(10):
            await tier.write(key(number), content(number, 1000))
        assert clock.now_ns() == 0
        assert await elapsed_ns(clock, tier.flush()) == 20 * NS_PER_MS
        assert await elapsed_ns(clock, tier.flush()) == 0
        # Nobody waited for those: the next one has no credit for them.
        await tier.write(key(10), content(10, 1000))
        assert await elapsed_ns(clock, tier.flush()) == 2 * NS_PER_MS


@pytest.mark.asyncio
async def test_directions_and_probes_do_not_meet() -> None:
    clock = VirtualClock(by_hand=True)
    async with opened(clock) as tier:
        await tier.write(key(1), content(1, 5000))
        await move_to(clock, 10 * NS_PER_MS)
        await tier.write(key(2), content(2, 100_000))
        read = asyncio.ensure_future(get(tier, key(1), 5000))
        probe = asyncio.ensure_future(tier.probe([key(1)]))
        other = asyncio.ensure_future(tier.probe([key(1)]))
        await clock.until_asleep(3)
        await move_to(clock, 13 * NS_PER_MS - 1)
        assert not probe.done()
        await move_to(clock, 13 * NS_PER_MS)
        assert probe.done()
        assert other.done()
        await move_to(clock, 15 * NS_PER_MS - 1)
        assert not read.done()
        await move_to(clock, 15 * NS_PER_MS)
        assert await read == content(1, 5000)


@pytest.mark.asyncio
async def test_prefetches_are_served_before_gets() -> None:
    clock = VirtualClock(by_hand=True)
    async with opened(clock) as tier:
        await tier.write(key(1), content(1, 1000))
        await move_to(clock, 2 * NS_PER_MS)
        start_ms = 2
        ended: list[str] = []

        async def read(name: str, *, prefetch: bool = False) -> None:
            await get(tier, key(1), 1000, prefetch=prefetch)
            ended.append(name)

        reads = []
        for name in ("get 1", "get 2", "prefetch 1", "prefetch 2"):
            reads.append(asyncio.ensure_future(read(name, prefetch=name.startswith("prefetch"))))
            await clock.until_asleep(len(reads))
        order = ["get 1", "prefetch 1", "prefetch 2", "get 2"]
        for served in range(1, 5):
            await move_to(clock, (start_ms + served) * NS_PER_MS - 1)
            assert ended == order[: served - 1]
            await move_to(clock, (start_ms + served) * NS_PER_MS)
            assert ended == order[:served]
        await asyncio.gather(*reads)


@pytest.mark.asyncio
async def test_a_cancelled_get_frees_its_turn() -> None:
    clock = VirtualClock(by_hand=True)
    async with opened(clock) as tier:
        await tier.write(key(1), content(1, 1000))
        await move_to(clock, 2 * NS_PER_MS)
        reads = []
        for _ in range(3):
            reads.append(asyncio.ensure_future(get(tier, key(1), 1000)))
            await clock.until_asleep(len(reads))
        reads[1].cancel()
        await asyncio.wait([reads[1]])
        assert tier.stats.queued == 2
        await move_to(clock, 4 * NS_PER_MS)
        assert not reads[2].done()
        # It slept for its old turn, wakes then, and learns that it was due already.
        await move_to(clock, 5 * NS_PER_MS)
        assert reads[2].done()


def three_objects() -> MockConfig:
    return replace(CONFIG, capacity_bytes=3000)


def there(tier: MockTier, *numbers: int) -> list[int]:
    """Return which objects are there now; a probe would make them newer."""
    assert tier.stats.objects == len(tier._store)
    return [number for number in numbers if key(number) in tier._store]


@pytest.mark.asyncio
async def test_the_oldest_use_goes_first() -> None:
    async with opened(VirtualClock(), three_objects()) as tier:
        await fill(tier, 0, 1, 2)
        await get(tier, key(0), 1000)
        await fill(tier, 3)
        assert there(tier, 0, 1, 2, 3) == [0, 2, 3]
        await tier.probe([key(2)])
        await fill(tier, 4)
        assert there(tier, 0, 2, 3, 4) == [2, 3, 4]
        await fill(tier, 2)
        await fill(tier, 5, nbytes=2000)
        assert there(tier, 2, 3, 4, 5) == [2, 5]
        assert tier.stats.evicted == 4
        assert tier.stats.used_bytes == 3000


@pytest.mark.asyncio
async def test_what_can_never_fit_is_refused() -> None:
    async with opened(VirtualClock(), three_objects()) as tier:
        await fill(tier, 0, 1, 2)
        with pytest.raises(TierError, match="3001 bytes does not fit"):
            await tier.write(key(9), content(9, 3001))
        assert tier.stats.errors == 1
        assert there(tier, 0, 1, 2) == [0, 1, 2]
        await fill(tier, 9, nbytes=3000)
        assert there(tier, 0, 1, 2, 9) == [9]


@pytest.mark.asyncio
async def test_a_copy_under_way_survives_its_objects_eviction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The buffer that is being read must not become the next write's."""
    began, go_on = threading.Event(), threading.Event()
    copy_to = Blob.copy_to

    def slow_copy(blob: Blob, out: memoryview) -> None:
        began.set()
        assert go_on.wait(60)
        copy_to(blob, out)

    clock = VirtualClock(by_hand=True)
    async with opened(clock, three_objects()) as tier:
        await tier.write(key(1), content(1, 3000))
        await move_to(clock, 6 * NS_PER_MS)
        monkeypatch.setattr(Blob, "copy_to", slow_copy)
        read = asyncio.ensure_future(get(tier, key(1), 3000))
        assert await asyncio.to_thread(began.wait, 60)
        for number in range(2, 5):
            await tier.write(key(number), content(number, 3000))
            await clock.move_ns(6 * NS_PER_MS)
            assert there(tier, 1, number) == [number]
        go_on.set()
        assert await read == content(1, 3000)
        spare_bytes = tier._blobs.spare_bytes
        assert spare_bytes >= 3000, "its buffer is free now"


@pytest.mark.asyncio
async def test_the_queue_of_puts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mock, "MAX_QUEUED_BYTES", 2500)

    clock = VirtualClock()
    async with opened(clock) as tier:
        acknowledged_ms = []
        for number in range(5):
            await tier.write(key(number), content(number, 1000))
            acknowledged_ms.append(clock.now_ns() / NS_PER_MS)
        assert acknowledged_ms == [0, 0, 2, 4, 6]
        # Larger than the queue: alone in it.
        await tier.write(key(9), content(9, 5000))
        assert clock.now_ns() == 10 * NS_PER_MS
        assert tier.stats.queued == 1


@pytest.mark.asyncio
async def test_without_data_reads_are_declared_unverifiable_and_depend_on_nothing() -> None:
    clock = VirtualClock()
    async with opened(clock, replace(CONFIG, keeps_data=False)) as tier:
        assert not tier.verifiable
        await fill(tier, 1)
        assert await get(tier, key(1), 1000) == bytes(1000)
        assert clock.now_ns() == (2 + 1) * NS_PER_MS
        assert tier.stats.used_bytes == 1000
        assert tier._blobs.spare_bytes == 0
    async with opened(clock) as tier:
        assert tier.verifiable

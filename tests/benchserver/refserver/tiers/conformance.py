"""What every tier must do: checks that take a maker of tiers.

A check gets `open_tier()`, an async context that opens a new, empty tier and closes it.  It fails
by AssertionError.  Content is not looked at where a tier says that it keeps none.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import pytest

from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.tiers.tier import Tier, TierError, TierMissError

OpenTier = Callable[[], AbstractAsyncContextManager[Tier]]
Check = Callable[[OpenTier], Awaitable[None]]

SIZES = (1, 2, 4095, 4096, 4097, 65_537, 3 << 20, (5 << 20) + 3)
POISON = 0xA5


def key(
    chunk: int, *, model: str = "m", ranks: int = 1, rank: int = 0, salt: str = ""
) -> ObjectKey:
    return ObjectKey(chunk.to_bytes(32, "big"), model, ranks, rank, salt)


def content(seed: int, nbytes: int) -> memoryview:
    """Return bytes that only this seed gives; read-only, as a careless tier should notice."""
    return memoryview(random.Random(seed).randbytes(nbytes))


async def put(tier: Tier, which: ObjectKey, data: memoryview) -> None:
    """Write and flush, with a buffer that is overwritten as soon as it may be."""
    lent = bytearray(data)
    await tier.write(which, memoryview(lent))
    lent[:] = bytes([POISON]) * len(lent)
    await tier.flush()


async def get(tier: Tier, which: ObjectKey, nbytes: int, *, prefetch: bool = False) -> bytes:
    out = bytearray([POISON]) * nbytes
    await tier.read(which, memoryview(out), prefetch=prefetch)
    return bytes(out)


async def expect(tier: Tier, which: ObjectKey, data: memoryview) -> None:
    """Expect an object to be there, with this content."""
    assert await tier.probe([which]) == 1
    seen = await get(tier, which, data.nbytes)
    assert not tier.verifiable or seen == data


async def expect_miss(tier: Tier, which: ObjectKey, nbytes: int = 10) -> None:
    assert await tier.probe([which]) == 0
    with pytest.raises(TierMissError):
        await get(tier, which, nbytes)


async def round_trips(open_tier: OpenTier) -> None:
    async with open_tier() as tier:
        for seed, nbytes in enumerate(SIZES):
            await put(tier, key(seed), content(seed, nbytes))
        for seed, nbytes in enumerate(SIZES):
            await expect(tier, key(seed), content(seed, nbytes))
            again = await get(tier, key(seed), nbytes, prefetch=True)
            assert not tier.verifiable or again == content(seed, nbytes)


async def every_field_of_the_key_counts(open_tier: OpenTier) -> None:
    keys = [
        key(1),
        key(2),
        key(1, model="n"),
        key(1, ranks=2),
        key(1, ranks=2, rank=1),
        key(1, salt="s"),
        key(1, model="ms"),
        key(1, model="m", salt="ms"),
        key(1, model="mö\ud800", salt="/../\0"),
    ]
    async with open_tier() as tier:
        for number, which in enumerate(keys):
            await expect_miss(tier, which)
            await put(tier, which, content(number, 1000))
        for number, which in enumerate(keys):
            await expect(tier, which, content(number, 1000))


async def a_probe_counts_up_to_the_first_miss(open_tier: OpenTier) -> None:
    async with open_tier() as tier:
        assert await tier.probe([]) == 0
        for number in (0, 1, 2, 4):
            await put(tier, key(number), content(number, 10))
        assert await tier.probe([key(number) for number in range(6)]) == 3
        assert await tier.probe([key(5), key(0)]) == 0
        assert await tier.probe([key(4), key(0), key(4)]) == 3


async def what_is_missing_is_a_miss(open_tier: OpenTier) -> None:
    async with open_tier() as tier:
        await expect_miss(tier, key(1))
        assert tier.stats.misses == 1
        assert tier.stats.errors == tier.stats.hits == 0


async def the_last_write_stays(open_tier: OpenTier) -> None:
    async with open_tier() as tier:
        for seed, nbytes in enumerate((1000, 1000, 70_000, 1)):
            await put(tier, key(1), content(seed, nbytes))
            await expect(tier, key(1), content(seed, nbytes))
        assert tier.stats.objects == 1


async def the_reader_must_know_the_size(open_tier: OpenTier) -> None:
    async with open_tier() as tier:
        await put(tier, key(1), content(1, 5000))
        for nbytes in (1, 4999, 5001, 9000):
            with pytest.raises(TierError):
                await get(tier, key(1), nbytes)
        await expect(tier, key(1), content(1, 5000))
        assert tier.stats.hits == 1


async def duplicates_in_a_batch_are_read_each(open_tier: OpenTier) -> None:
    async with open_tier() as tier:
        await put(tier, key(1), content(1, 50_000))
        assert await tier.probe([key(1), key(1), key(1)]) == 3
        seen = await asyncio.gather(*(get(tier, key(1), 50_000) for _ in range(5)))
        assert not tier.verifiable or set(seen) == {bytes(content(1, 50_000))}


async def many_at_once_never_see_another_object(open_tier: OpenTier) -> None:
    """Four writers and eight readers of six keys: whoever reads gets one whole version."""
    nbytes = 30_000
    versions = [[content(10 * k + v, nbytes) for v in range(3)] for k in range(6)]

    async def write(tier: Tier, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(12):
            number = chance.randrange(6)
            await tier.write(key(number), chance.choice(versions[number]))

    async def read(tier: Tier, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(12):
            number = chance.randrange(6)
            await tier.probe([key(number)])
            try:
                seen = await get(tier, key(number), nbytes, prefetch=chance.random() < 0.5)
            except TierMissError:
                continue
            assert not tier.verifiable or seen in versions[number]

    async with open_tier() as tier:
        writers = [write(tier, seed) for seed in range(4)]
        await asyncio.gather(*writers, *(read(tier, 100 + seed) for seed in range(8)))
        await tier.flush()
        assert tier.stats.errors == 0
        assert tier.stats.queued == 0


async def a_flush_is_for_what_was_written_before(open_tier: OpenTier) -> None:
    async with open_tier() as tier:
        await asyncio.gather(*(tier.write(key(n), content(n, 20_000)) for n in range(10)))
        await tier.flush()
        assert await tier.probe([key(n) for n in range(11)]) == 10
        assert tier.stats.written_bytes == 200_000


async def a_cancelled_write_leaves_all_or_nothing(open_tier: OpenTier) -> None:
    """Cancel after each number of turns of the event loop, over an old object and over none."""
    nbytes = 2 << 20
    old, new = content(1, nbytes), content(2, nbytes)
    async with open_tier() as tier:
        for turns in (0, 1, 2, 3, 5, 20, 200):
            await put(tier, key(turns), old)
            for which in (key(turns), key(1000 + turns)):
                lent = bytearray(new)
                task = asyncio.ensure_future(tier.write(which, memoryview(lent)))
                await cancel_after(task, turns)
                lent[:] = bytes(nbytes)
            await tier.flush()
            seen = await get(tier, key(turns), nbytes)
            assert not tier.verifiable or seen in (old, new), turns
            try:
                seen = await get(tier, key(1000 + turns), nbytes)
            except TierMissError:
                continue
            assert not tier.verifiable or seen == new, turns


async def a_cancelled_read_leaves_its_buffer_alone(open_tier: OpenTier) -> None:
    """Twice cancelled even: when the caller goes on, nobody writes into its memory."""
    nbytes = 2 << 20
    async with open_tier() as tier:
        await put(tier, key(1), content(1, nbytes))
        for turns in (0, 1, 2, 3, 5, 20):
            out = bytearray(nbytes)
            task = asyncio.ensure_future(tier.read(key(1), memoryview(out)))
            await cancel_after(task, turns)
            left = bytes(out)
            await asyncio.sleep(0.002)
            assert out == left, turns
        await expect(tier, key(1), content(1, nbytes))
        assert tier.stats.queued == 0


async def cancel_after(task: asyncio.Task[None], turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([task])
    assert task.cancelled() or task.exception() is None


async def numbers_add_up(open_tier: OpenTier) -> None:
    async with open_tier() as tier:
        for number in range(3):
            await put(tier, key(number), content(number, 1000))
        await expect(tier, key(0), content(0, 1000))
        await expect_miss(tier, key(9))
        stats = tier.stats
        assert (stats.hits, stats.misses, stats.errors, stats.corrupt) == (1, 1, 0, 0)
        assert (stats.read_bytes, stats.written_bytes, stats.objects) == (1000, 3000, 3)
        assert 3000 <= stats.used_bytes <= 3 * 2000
        assert stats.used_bytes <= stats.capacity_bytes
        stats.hits = 77
        assert tier.stats.hits == 1


async def closing_is_final_and_may_be_repeated(open_tier: OpenTier) -> None:
    async with open_tier() as tier:
        await put(tier, key(1), content(1, 100))
        await tier.close()
        await tier.close()
        for call in (
            lambda: tier.probe([key(1)]),
            lambda: get(tier, key(1), 100),
            lambda: tier.write(key(2), content(2, 100)),
            tier.flush,
        ):
            with pytest.raises(TierError, match="closed"):
                await call()


async def closing_waits_for_what_runs(open_tier: OpenTier) -> None:
    async with open_tier() as tier:
        await put(tier, key(1), content(1, 2 << 20))
        out = bytearray(2 << 20)
        busy = [
            asyncio.ensure_future(tier.read(key(1), memoryview(out))),
            asyncio.ensure_future(tier.write(key(2), content(2, 2 << 20))),
        ]
        await asyncio.sleep(0)
        await tier.close()
        for ended in await asyncio.gather(*busy, return_exceptions=True):
            assert ended is None or isinstance(ended, TierError), ended


CHECKS: tuple[Check, ...] = (
    round_trips,
    every_field_of_the_key_counts,
    a_probe_counts_up_to_the_first_miss,
    what_is_missing_is_a_miss,
    the_last_write_stays,
    the_reader_must_know_the_size,
    duplicates_in_a_batch_are_read_each,
    many_at_once_never_see_another_object,
    a_flush_is_for_what_was_written_before,
    a_cancelled_write_leaves_all_or_nothing,
    a_cancelled_read_leaves_its_buffer_alone,
    numbers_add_up,
    closing_is_final_and_may_be_repeated,
    closing_waits_for_what_runs,
)

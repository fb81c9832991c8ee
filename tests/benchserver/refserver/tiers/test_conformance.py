"""Every tier passes every check, and wrong tiers do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from benchserver.clock import NS_PER_MS, RealClock, VirtualClock
from benchserver.refserver.fineclock import FineClock
from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.tiers.config import GB, FsConfig, MockConfig
from benchserver.refserver.tiers.fs.tier import FsTier
from benchserver.refserver.tiers.mock.tier import MockTier
from benchserver.refserver.tiers.tier import Tier, TierMissError, TierStats
from tests.benchserver.refserver.tiers import conformance
from tests.benchserver.refserver.tiers.conformance import CHECKS, Check, OpenTier
from tests.benchserver.refserver.tiers.reference import DictTier

pytestmark = pytest.mark.usefixtures("leak_free")

FAST = MockConfig(capacity_bytes=GB, latency_ns=NS_PER_MS // 100, read_bytes_per_s=16 * GB)

MAKERS: dict[str, Callable[[Path], Tier]] = {
    "dict": lambda _: DictTier(),
    "fs": lambda path: FsTier(FsConfig(directory=path)),
    "fs with a capacity": lambda path: FsTier(
        FsConfig(directory=path, capacity_bytes=64 << 20),
    ),
    "mock": lambda _: MockTier(FAST, FineClock()),
    "mock, coarse clock": lambda _: MockTier(FAST, RealClock()),
    "mock, virtual clock": lambda _: MockTier(FAST, VirtualClock()),
    "mock, slow": lambda _: MockTier(
        MockConfig(capacity_bytes=GB, write_bytes_per_s=GB), VirtualClock()
    ),
    "mock without data": lambda _: MockTier(replace(FAST, keeps_data=False), FineClock()),
}


def opener(make: Callable[[Path], Tier], root: Path) -> OpenTier:
    """Return a maker of empty tiers, each in a directory of its own."""

    serial = count()

    @asynccontextmanager
    async def open_tier() -> AsyncIterator[Tier]:
        tier = make(root / f"tier-{next(serial)}")
        try:
            yield tier
        finally:
            await tier.close()

    return open_tier


@pytest.mark.asyncio
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", MAKERS)
async def test_tiers_conform(name: str, check: Check, tmp_path: Path) -> None:
    await check(opener(MAKERS[name], tmp_path))


class Borrower(DictTier):
    """Keeps the writer's memory instead of a copy."""

    async def write(self, key: ObjectKey, data: memoryview) -> None:
        await super().write(key, memoryview(b""))
        self.objects[key] = data  # type: ignore[assignment]


class Confuser(DictTier):
    """Forgets the salt."""

    async def probe(self, keys: Sequence[ObjectKey]) -> int:
        return await super().probe([replace(key, salt="") for key in keys])

    async def read(self, key: ObjectKey, out: memoryview, *, prefetch: bool = False) -> None:
        await super().read(replace(key, salt=""), out, prefetch=prefetch)

    async def write(self, key: ObjectKey, data: memoryview) -> None:
        await super().write(replace(key, salt=""), data)


class Counter(DictTier):
    """Counts all keys that are there, not the leading ones."""

    async def probe(self, keys: Sequence[ObjectKey]) -> int:
        return sum(key in self.objects for key in keys)


class Stretcher(DictTier):
    """Reads whatever fits."""

    async def read(self, key: ObjectKey, out: memoryview, *, prefetch: bool = False) -> None:
        if key not in self.objects:
            self.counts.misses += 1
            raise TierMissError("no such object")
        data = self.objects[key][: out.nbytes]
        out[: len(data)] = data


class Tearer(DictTier):
    """Writes in two steps, and can be seen and cancelled between them."""

    async def write(self, key: ObjectKey, data: memoryview) -> None:
        half = data.nbytes // 2
        self.objects[key] = bytes(data[:half]) + bytes(data.nbytes - half)
        for _ in range(4):
            await asyncio.sleep(0)
        self.objects[key] = bytes(data)


class Liar(DictTier):
    """Finds everything, and gives what the buffer held."""

    async def read(self, key: ObjectKey, out: memoryview, *, prefetch: bool = False) -> None:
        return


class Late(DictTier):
    """Goes on writing into the reader's buffer after the reader was cancelled."""

    async def read(self, key: ObjectKey, out: memoryview, *, prefetch: bool = False) -> None:
        loop = asyncio.get_running_loop()

        def write(left: int) -> None:
            out[0] = left
            if left:  # once a turn of the loop, for more turns than any cancellation takes
                loop.call_soon(write, left - 1)

        write(100)
        await asyncio.sleep(0.001)
        await super().read(key, out, prefetch=prefetch)


class Undying(DictTier):
    """Answers after its end."""

    def check_open(self) -> None:
        return


class Leaker(DictTier):
    """Hands out its own counters."""

    @property
    def stats(self) -> TierStats:
        self.counts.objects = len(self.objects)
        self.counts.used_bytes = sum(map(len, self.objects.values()))
        return self.counts


WRONG: dict[type[DictTier], Check] = {
    Borrower: conformance.round_trips,
    Confuser: conformance.every_field_of_the_key_counts,
    Counter: conformance.a_probe_counts_up_to_the_first_miss,
    Stretcher: conformance.the_reader_must_know_the_size,
    Tearer: conformance.a_cancelled_write_leaves_all_or_nothing,
    Liar: conformance.duplicates_in_a_batch_are_read_each,
    Late: conformance.a_cancelled_read_leaves_its_buffer_alone,
    Undying: conformance.closing_is_final_and_may_be_repeated,
    Leaker: conformance.numbers_add_up,
}


@pytest.mark.asyncio
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
async def test_wrong_tiers_are_caught(wrong: type[DictTier], tmp_path: Path) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await WRONG[wrong](opener(lambda _: wrong(), tmp_path))

"""The mooncake tier over a store of our own; tests/mooncake has the real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from benchserver.refserver.tiers.config import MooncakeConfig
from benchserver.refserver.tiers.framing import FIXED_BYTES, header_bytes
from benchserver.refserver.tiers.keyname import key_bytes
from benchserver.refserver.tiers.mooncake import tier as mooncake
from benchserver.refserver.tiers.mooncake.codes import meaning_of
from benchserver.refserver.tiers.tier import Tier, TierError, TierMissError
from tests.benchserver.refserver.tiers.conformance import (
    CHECKS,
    Check,
    content,
    expect,
    expect_miss,
    get,
    key,
    put,
)
from tests.benchserver.refserver.tiers.mooncake.opening import opened

pytestmark = pytest.mark.usefixtures("leak_free")
HEADER = header_bytes(key_bytes(key(1)))
SIZE = 5000


@pytest.mark.asyncio
@pytest.mark.usefixtures("fake_store")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_tier_conforms(check: Check, config: MooncakeConfig) -> None:
    @asynccontextmanager
    async def open_tier() -> AsyncIterator[Tier]:
        async with opened(config) as tier:
            yield tier

    await check(open_tier)


DAMAGE = ["flip 0", "flip 11", "flip 15", "flip 23", "flip 24", f"flip {FIXED_BYTES}"]
DAMAGE += [f"flip {HEADER}", f"flip {HEADER + SIZE - 1}"]
DAMAGE += ["cut 0", "cut 10", f"cut {HEADER}", f"cut {HEADER + SIZE - 1}", "-703"]


@pytest.mark.asyncio
@pytest.mark.parametrize("wrong", DAMAGE, indirect=True)
async def test_what_is_not_what_was_written_is_a_miss(config: MooncakeConfig, wrong: str) -> None:
    async with opened(config) as tier:
        await put(tier, key(1), content(1, SIZE))
        with pytest.raises(TierMissError):
            await get(tier, key(1), SIZE)
        corrupt = 0 if wrong == "-703" else 1
        assert (tier.stats.misses, tier.stats.corrupt) == (1, corrupt)


@pytest.mark.asyncio
@pytest.mark.parametrize("wrong", ["-707", "-800", "-12345"], indirect=True)
async def test_a_code_is_an_error_with_its_meaning(config: MooncakeConfig, wrong: str) -> None:
    async with opened(config) as tier:
        await put(tier, key(1), content(1, SIZE))
        with pytest.raises(TierError) as caught:
            await get(tier, key(1), SIZE)
        assert not isinstance(caught.value, TierMissError)
        assert str(caught.value) == meaning_of(int(wrong))
        assert tier.stats.errors == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("wrong", ["full"], indirect=True)
async def test_a_full_store_refuses_after_some_tries(config: MooncakeConfig, wrong: str) -> None:
    async with opened(config) as tier:
        with pytest.raises(TierError, match=r"has room.*\(Mooncake's code -200\); not stored"):
            await put(tier, key(1), content(1, SIZE))
        await expect_miss(tier, key(1), SIZE)


@pytest.mark.asyncio
@pytest.mark.parametrize("wrong", ["no master"], indirect=True)
async def test_a_probe_that_fails_is_no_miss(config: MooncakeConfig, wrong: str) -> None:
    async with opened(config) as tier:
        with pytest.raises(TierError, match="the master cannot be reached"):
            await tier.probe([key(1)])


@pytest.mark.asyncio
@pytest.mark.usefixtures("fake_store")
async def test_a_long_probe_takes_several_calls(config: MooncakeConfig) -> None:
    async with opened(config) as tier:
        await put(tier, key(1), content(1, SIZE))
        await put(tier, key(2), content(2, SIZE))
        keys = [key(1)] * mooncake.PROBE_AT_ONCE * 2
        assert await tier.probe(keys) == len(keys)
        assert await tier.probe([*keys, key(2), key(3), key(1)]) == len(keys) + 1


@pytest.mark.asyncio
@pytest.mark.usefixtures("fake_store")
async def test_objects_wait_for_room_in_the_buffer(config: MooncakeConfig) -> None:
    small = MooncakeConfig(master=config.master, metadata=config.metadata, buffer_bytes=2 << 20)

    async with opened(small) as tier:
        writes = [tier.write(key(number), content(number, 900_000)) for number in range(20)]
        await asyncio.gather(*writes)
        for number in range(20):
            await expect(tier, key(number), content(number, 900_000))
        with pytest.raises(TierError, match="does not pass through a buffer of 2097152"):
            await tier.write(key(30), content(30, 2 << 20))


@pytest.mark.asyncio
@pytest.mark.usefixtures("fake_store")
async def test_the_numbers_remember_so_many_objects(
    config: MooncakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mooncake, "MAX_KNOWN", 3)

    async with opened(config) as tier:
        for number in range(5):
            await put(tier, key(number), content(number, 100))
        assert tier.stats.objects == 3
        await expect(tier, key(0), content(0, 100))

"""Files that were damaged, left over or lost; restarts; the capacity."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from pathlib import Path

import pytest

from benchserver.errors import UsageError
from benchserver.refserver.tiers.config import FsConfig
from benchserver.refserver.tiers.framing import header_bytes
from benchserver.refserver.tiers.fs.tier import FsTier
from benchserver.refserver.tiers.keyname import key_bytes, name_of
from benchserver.refserver.tiers.tier import TierError, TierMissError
from tests.benchserver.refserver.tiers.conformance import content, expect, expect_miss, get, key
from tests.benchserver.refserver.tiers.fs.directory import (
    bytes_in,
    file_of,
    files_in,
    opened,
    replace_file,
)

pytestmark = pytest.mark.usefixtures("leak_free")

SMALL = 40


async def damaged_is_a_miss(tier: FsTier, path: Path, damaged: bytes, what: object) -> None:
    """Damage the file of key(1) behind the tier's back; the next write must repair it."""
    replace_file(path, damaged)
    before = tier.stats
    with pytest.raises(TierMissError):
        await get(tier, key(1), SMALL)
    assert path not in files_in(path.parents[2]), what
    assert tier.stats.corrupt == before.corrupt + 1, what
    assert tier.stats.used_bytes == tier.stats.objects == 0, what
    await expect_miss(tier, key(1))
    await tier.write(key(1), content(1, SMALL))
    await expect(tier, key(1), content(1, SMALL))


@pytest.mark.asyncio
async def test_every_flipped_bit_is_a_miss(tmp_path: Path) -> None:
    async with opened(tmp_path) as tier:
        await tier.write(key(1), content(1, SMALL))
        path = file_of(tmp_path, key(1))
        sound = path.read_bytes()
        for position in range(len(sound)):
            damaged = bytearray(sound)
            damaged[position] ^= 1 << position % 8
            await damaged_is_a_miss(tier, path, bytes(damaged), position)


@pytest.mark.asyncio
async def test_every_other_length_is_a_miss(tmp_path: Path) -> None:
    async with opened(tmp_path) as tier:
        await tier.write(key(1), content(1, SMALL))
        path = file_of(tmp_path, key(1))
        sound = path.read_bytes()
        for length in range(len(sound)):
            await damaged_is_a_miss(tier, path, sound[:length], length)
        for longer in (sound + b"\0", sound + sound):
            await damaged_is_a_miss(tier, path, longer, len(longer))


@pytest.mark.asyncio
async def test_another_objects_file_is_a_miss(tmp_path: Path) -> None:
    async def damaged_is_a_miss_beside(tier: FsTier, other: bytes) -> None:
        file_of(tmp_path, key(1)).write_bytes(other)
        with pytest.raises(TierMissError, match="another object's bytes; dropped"):
            await get(tier, key(1), SMALL)
        await expect(tier, key(2), content(2, SMALL))

    async with opened(tmp_path) as tier:
        await tier.write(key(1), content(1, SMALL))
        await tier.write(key(2), content(2, SMALL))
        other = file_of(tmp_path, key(2)).read_bytes()
        await damaged_is_a_miss_beside(tier, other)


@pytest.mark.asyncio
async def test_a_file_that_vanished_is_a_miss(tmp_path: Path) -> None:
    async with opened(tmp_path) as tier:
        await tier.write(key(1), content(1, SMALL))
        file_of(tmp_path, key(1)).unlink()
        with pytest.raises(TierMissError):
            await get(tier, key(1), SMALL)
        assert tier.stats.used_bytes == 0
        assert tier.stats.corrupt == 0


@pytest.mark.asyncio
async def test_a_restart_drops_every_damaged_header_and_keeps_what_is_not_ours(
    tmp_path: Path,
) -> None:
    async def write_one() -> None:
        async with opened(tmp_path) as tier:
            await tier.write(key(1), content(1, SMALL))

    async def reopen(position: int) -> None:
        async with opened(tmp_path) as tier:
            assert tier.stats.corrupt == 1, position
            assert tier.stats.objects == tier.stats.used_bytes == 0, position
            await expect_miss(tier, key(1))

    await write_one()
    path = file_of(tmp_path, key(1))
    sound = path.read_bytes()
    alien = path.parent / "notes.txt"
    alien.write_text("mine")
    header = header_bytes(key_bytes(key(1)))
    digest = range(24, 56)
    for position in sorted(set(range(header)) - set(digest)):
        damaged = bytearray(sound)
        damaged[position] ^= 0x10
        path.write_bytes(bytes(damaged))
        await reopen(position)
        assert not path.exists()
    for length in (0, 1, 55, 56, header, header + 1, len(sound) - 1):
        path.write_bytes(sound[:length])
        await reopen(length)
    assert alien.read_text() == "mine"


@pytest.mark.asyncio
async def test_a_restart_finds_everything_and_counts_it(tmp_path: Path) -> None:
    sizes = [1, 1000, 70_000, 1 << 20]

    async def fill() -> int:
        async with opened(tmp_path) as tier:
            for number, nbytes in enumerate(sizes):
                await tier.write(key(number), content(number, nbytes))
            return tier.stats.used_bytes

    async def again(used_bytes: int) -> None:
        async with opened(tmp_path) as tier:
            stats = tier.stats
            assert stats.used_bytes == used_bytes == bytes_in(tmp_path)
            assert stats.objects == len(sizes)
            assert stats.hits == stats.written_bytes == 0
            assert await tier.probe([key(number) for number in range(9)]) == len(sizes)
            for number, nbytes in enumerate(sizes):
                await expect(tier, key(number), content(number, nbytes))

    await again(await fill())


@pytest.mark.asyncio
async def test_what_a_killed_server_left_over_is_removed(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    leftover = tmp_path / "temporary" / f"{name_of(key_bytes(key(1)))}-4"
    leftover.write_bytes(b"half an object")
    alien = tmp_path / "temporary" / "notes.txt"
    alien.write_bytes(b"")
    async with opened(tmp_path):
        assert not leftover.exists()
        assert alien.exists()
        assert bytes_in(tmp_path) == 0


@pytest.mark.parametrize("place", ["temporary", "objects-v1", "objects-v1/ab"])
def test_nothing_is_deleted_behind_a_link(tmp_path: Path, place: str) -> None:
    directory, precious = tmp_path / "d", tmp_path / "precious"
    names = [f"ab{'0' * 30}", f"ab{'0' * 30}-1", "notes.txt"]
    for folder in (directory, directory / "objects-v1", precious, precious / "ab"):
        folder.mkdir()
    files = [folder / name for folder in (precious, precious / "ab") for name in names]
    for path in files:
        path.write_text("mine")
    if place == "objects-v1":
        (directory / place).rmdir()
    (directory / place).symlink_to(precious)
    for _ in range(2):  # the refused tier holds no lock
        with pytest.raises(UsageError, match=rf"/d.*: {Path(place).name} is a link, and files"):
            FsTier(FsConfig(directory=directory))
    assert all(path.read_text() == "mine" for path in files)


def test_a_link_in_the_place_of_the_lock_makes_no_file_elsewhere(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    (directory / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="/d: Too many levels of symbolic links"):
        FsTier(FsConfig(directory=directory))
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.asyncio
async def test_two_servers_do_not_share_a_directory(tmp_path: Path) -> None:
    async with opened(tmp_path):
        with pytest.raises(UsageError, match="used by another server"):
            FsTier(FsConfig(directory=tmp_path))
    async with opened(tmp_path):
        pass


def test_directories_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"missing/dir: No such file or directory"):
        FsTier(FsConfig(directory=tmp_path / "missing" / "dir"))
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"file: File exists"):
        FsTier(FsConfig(directory=tmp_path / "file"))
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "objects-v1").write_text("")
    with pytest.raises(UsageError, match=r"odd: File exists"):
        FsTier(FsConfig(directory=tmp_path / "odd"))


# Capacity.

ROOM_FOR_THREE = 3 * (header_bytes(key_bytes(key(0))) + 1000)


async def fill_three(tier: FsTier) -> None:
    for number in range(3):
        await tier.write(key(number), content(number, 1000))


async def there(tier: FsTier, *numbers: int) -> list[int]:
    """Return which objects are there, by their files: a probe would make them newer."""
    return [n for n in numbers if tier._path_of(name_of(key_bytes(key(n)))).exists()]


@pytest.mark.asyncio
async def test_the_oldest_use_goes_first(tmp_path: Path) -> None:
    async with opened(tmp_path, ROOM_FOR_THREE) as tier:
        await fill_three(tier)
        await get(tier, key(0), 1000)
        await tier.write(key(3), content(3, 1000))
        assert await there(tier, 0, 1, 2, 3) == [0, 2, 3]
        await tier.probe([key(2)])
        await tier.write(key(4), content(4, 1000))
        assert await there(tier, 0, 1, 2, 3, 4) == [2, 3, 4]
        assert tier.stats.evicted == 2
        assert tier.stats.used_bytes == bytes_in(tmp_path) == ROOM_FOR_THREE


@pytest.mark.asyncio
async def test_a_restart_does_not_overfill(tmp_path: Path) -> None:
    async with opened(tmp_path, ROOM_FOR_THREE) as tier:
        await fill_three(tier)
    # Ages as a slow writer would have left them.
    for number, age in ((1, 10), (2, 20), (0, 30)):
        os.utime(file_of(tmp_path, key(number)), (age, age))
    async with opened(tmp_path, ROOM_FOR_THREE) as tier:
        assert tier.stats.used_bytes == bytes_in(tmp_path)
        await tier.write(key(3), content(3, 1000))
        assert await there(tier, 0, 1, 2, 3) == [0, 2, 3]
        assert bytes_in(tmp_path) <= ROOM_FOR_THREE
    async with opened(tmp_path, ROOM_FOR_THREE // 3) as tier:
        assert await there(tier, 0, 1, 2, 3) == [3]
        assert tier.stats.used_bytes == bytes_in(tmp_path)


@pytest.mark.asyncio
async def test_what_does_not_fit_is_refused_and_costs_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, ROOM_FOR_THREE) as tier:
        await fill_three(tier)
        with pytest.raises(TierError, match="no room"):
            await tier.write(key(9), content(9, ROOM_FOR_THREE))
        assert tier.stats.errors == 1
        assert await there(tier, 0, 1, 2, 9) == [0, 1, 2]


@pytest.mark.asyncio
async def test_the_capacity_holds_at_every_moment(tmp_path: Path) -> None:
    capacity_bytes = 60_000
    seen = []

    async def work(tier: FsTier, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(25):
            number = chance.randrange(8)
            with contextlib.suppress(TierError):
                await tier.write(key(number), content(number, chance.randrange(1, 15_000)))
            seen.append(bytes_in(tmp_path))

    async with opened(tmp_path, capacity_bytes) as tier:
        await asyncio.gather(*(work(tier, seed) for seed in range(6)))
        assert max(seen) <= capacity_bytes
        assert tier.stats.used_bytes == bytes_in(tmp_path)
        assert tier.stats.objects == len(files_in(tmp_path))
        assert not len(tier._locks)


# What happens at the same time.


@pytest.mark.asyncio
async def test_a_corrupt_file_that_was_replaced_meanwhile_is_kept(tmp_path: Path) -> None:
    async with opened(tmp_path) as tier:
        await tier.write(key(1), content(1, SMALL))
        path = file_of(tmp_path, key(1))
        sound = path.read_bytes()
        replace_file(path, sound[:-1] + b"?")
        async with tier._locks.of(path.name):
            read = asyncio.ensure_future(get(tier, key(1), SMALL))
            while not tier.stats.corrupt:
                await asyncio.wait([read], timeout=0.001)
            new = tmp_path / "new"
            replace_file(new, sound)
            os.rename(new, path)
        with pytest.raises(TierMissError):
            await read
        await expect(tier, key(1), content(1, SMALL))


@pytest.mark.asyncio
async def test_an_object_that_is_written_again_while_it_is_evicted_stays(tmp_path: Path) -> None:
    async with opened(tmp_path, ROOM_FOR_THREE) as tier:
        await fill_three(tier)
        async with tier._locks.of(name_of(key_bytes(key(0)))):
            both = [
                asyncio.ensure_future(tier.write(key(0), content(10, 500))),
                asyncio.ensure_future(tier.write(key(3), content(3, 900))),
            ]
            await asyncio.wait(both, timeout=0.05)
            assert not any(write.done() for write in both)
        await asyncio.gather(*both)
        await expect(tier, key(0), content(10, 500))
        await expect(tier, key(3), content(3, 900))
        assert tier.stats.used_bytes == bytes_in(tmp_path) <= ROOM_FOR_THREE


@pytest.mark.asyncio
async def test_writes_of_one_key_take_turns(tmp_path: Path) -> None:
    async with opened(tmp_path) as tier:
        async with tier._locks.of(name_of(key_bytes(key(1)))):
            write = asyncio.ensure_future(tier.write(key(1), content(1, 500)))
            await tier.write(key(2), content(2, 500))
            await asyncio.wait([write], timeout=0.02)
            assert not write.done()
        await write
        await expect(tier, key(1), content(1, 500))


@pytest.mark.asyncio
async def test_what_is_used_while_its_eviction_waits_is_not_evicted(tmp_path: Path) -> None:
    async with opened(tmp_path, ROOM_FOR_THREE) as tier:
        await fill_three(tier)
        async with tier._locks.of(name_of(key_bytes(key(0)))):
            write = asyncio.ensure_future(tier.write(key(3), content(3, 1000)))
            await asyncio.wait([write], timeout=0.02)
            assert await tier.probe([key(0)]) == 1
        await write
        assert await there(tier, 0, 1, 2, 3) == [0, 2, 3]


@pytest.mark.asyncio
async def test_whoever_waits_when_the_tier_closes_gets_an_error(tmp_path: Path) -> None:
    async with opened(tmp_path) as tier:
        async with tier._locks.of(name_of(key_bytes(key(1)))):
            write = asyncio.ensure_future(tier.write(key(1), content(1, 500)))
            await asyncio.sleep(0)
            await tier.close()
        with pytest.raises(TierError, match="closed"):
            await write
        assert bytes_in(tmp_path) == 0

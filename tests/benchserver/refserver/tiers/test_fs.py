"""Files that were damaged, left over, or killed; full disks; restarts."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import resource
import select
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchserver.errors import UsageError
from benchserver.refserver.cache import ObjectKey
from benchserver.refserver.tiers.config import UNLIMITED, FsConfig
from benchserver.refserver.tiers.fs import FsTier
from benchserver.refserver.tiers.keyname import key_bytes, name_of
from benchserver.refserver.tiers.objectfile import header_bytes
from benchserver.refserver.tiers.tier import TierError, TierMissError
from tests.benchserver.refserver.tiers.conformance import content, expect, expect_miss, get, key
from tests.benchserver.refserver.tiers.killed_writer import KEYS, NBYTES, payload, version_of

pytestmark = pytest.mark.usefixtures("leak_free")

SMALL = 40


@asynccontextmanager
async def opened(directory: Path, capacity_bytes: int = UNLIMITED) -> AsyncIterator[FsTier]:
    tier = FsTier(FsConfig(directory=directory, capacity_bytes=capacity_bytes))
    try:
        yield tier
    finally:
        await tier.close()


def file_of(directory: Path, which: ObjectKey) -> Path:
    name = name_of(key_bytes(which))
    return directory / "objects-v1" / name[:2] / name


def files_in(directory: Path) -> list[Path]:
    return sorted(path for path in (directory / "objects-v1").rglob("*") if path.is_file())


def bytes_in(directory: Path) -> int:
    """Return what all files take; one that goes while it is looked at takes nothing."""
    total = 0
    for path in [*files_in(directory), *(directory / "temporary").iterdir()]:
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def replace_file(path: Path, data: bytes) -> None:
    path.write_bytes(data)


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


def test_every_flipped_bit_is_a_miss(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as tier:
            await tier.write(key(1), content(1, SMALL))
            path = file_of(tmp_path, key(1))
            sound = path.read_bytes()
            for position in range(len(sound)):
                damaged = bytearray(sound)
                damaged[position] ^= 1 << position % 8
                await damaged_is_a_miss(tier, path, bytes(damaged), position)

    asyncio.run(main())


def test_every_other_length_is_a_miss(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as tier:
            await tier.write(key(1), content(1, SMALL))
            path = file_of(tmp_path, key(1))
            sound = path.read_bytes()
            for length in range(len(sound)):
                await damaged_is_a_miss(tier, path, sound[:length], length)
            for longer in (sound + b"\0", sound + sound):
                await damaged_is_a_miss(tier, path, longer, len(longer))

    asyncio.run(main())


def test_another_objects_file_is_a_miss(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as tier:
            await tier.write(key(1), content(1, SMALL))
            await tier.write(key(2), content(2, SMALL))
            other = file_of(tmp_path, key(2)).read_bytes()
            await damaged_is_a_miss_beside(tier, other)

    async def damaged_is_a_miss_beside(tier: FsTier, other: bytes) -> None:
        file_of(tmp_path, key(1)).write_bytes(other)
        with pytest.raises(TierMissError, match="another object's file; dropped"):
            await get(tier, key(1), SMALL)
        await expect(tier, key(2), content(2, SMALL))

    asyncio.run(main())


def test_a_file_that_vanished_is_a_miss(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as tier:
            await tier.write(key(1), content(1, SMALL))
            file_of(tmp_path, key(1)).unlink()
            with pytest.raises(TierMissError):
                await get(tier, key(1), SMALL)
            assert tier.stats.used_bytes == 0
            assert tier.stats.corrupt == 0

    asyncio.run(main())


def test_a_restart_drops_every_damaged_header_and_keeps_what_is_not_ours(tmp_path: Path) -> None:
    async def write_one() -> None:
        async with opened(tmp_path) as tier:
            await tier.write(key(1), content(1, SMALL))

    async def reopen(position: int) -> None:
        async with opened(tmp_path) as tier:
            assert tier.stats.corrupt == 1, position
            assert tier.stats.objects == tier.stats.used_bytes == 0, position
            await expect_miss(tier, key(1))

    asyncio.run(write_one())
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
        asyncio.run(reopen(position))
        assert not path.exists()
    for length in (0, 1, 55, 56, header, header + 1, len(sound) - 1):
        path.write_bytes(sound[:length])
        asyncio.run(reopen(length))
    assert alien.read_text() == "mine"


def test_a_restart_finds_everything_and_counts_it(tmp_path: Path) -> None:
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

    asyncio.run(again(asyncio.run(fill())))


def test_what_a_killed_server_left_over_is_removed(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path):
            pass
        leftover = tmp_path / "temporary" / "0123-4"
        leftover.write_bytes(b"half an object")
        async with opened(tmp_path):
            assert not leftover.exists()
            assert bytes_in(tmp_path) == 0

    asyncio.run(main())


def test_two_servers_do_not_share_a_directory(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path):
            with pytest.raises(UsageError, match="used by another server"):
                FsTier(FsConfig(directory=tmp_path))
        async with opened(tmp_path):
            pass

    asyncio.run(main())


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


def test_the_oldest_use_goes_first(tmp_path: Path) -> None:
    async def main() -> None:
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

    asyncio.run(main())


def test_a_restart_does_not_overfill(tmp_path: Path) -> None:
    async def main() -> None:
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

    asyncio.run(main())


def test_what_does_not_fit_is_refused_and_costs_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path, ROOM_FOR_THREE) as tier:
            await fill_three(tier)
            with pytest.raises(TierError, match="no room"):
                await tier.write(key(9), content(9, ROOM_FOR_THREE))
            assert tier.stats.errors == 1
            assert await there(tier, 0, 1, 2, 9) == [0, 1, 2]

    asyncio.run(main())


def test_the_capacity_holds_at_every_moment(tmp_path: Path) -> None:
    capacity_bytes = 60_000
    seen = []

    async def work(tier: FsTier, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(25):
            number = chance.randrange(8)
            with contextlib.suppress(TierError):
                await tier.write(key(number), content(number, chance.randrange(1, 15_000)))
            seen.append(bytes_in(tmp_path))

    async def main() -> None:
        async with opened(tmp_path, capacity_bytes) as tier:
            await asyncio.gather(*(work(tier, seed) for seed in range(6)))
            assert max(seen) <= capacity_bytes
            assert tier.stats.used_bytes == bytes_in(tmp_path)
            assert tier.stats.objects == len(files_in(tmp_path))
            assert not len(tier._locks)

    asyncio.run(main())


# Disks that refuse.


@contextmanager
def failing(
    monkeypatch: pytest.MonkeyPatch, name: str, number: int, nth: int = 1
) -> Iterator[None]:
    """Let the nth call of one os function fail."""
    real, calls = getattr(os, name), 0

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise OSError(number, os.strerror(number))
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, name, call)
        yield
    assert calls >= nth, f"os.{name} was not called"


STEPS = [("open", 1), ("write", 1), ("write", 2), ("fsync", 1), ("rename", 1), ("open", 2)]
STEPS += [("fsync", 2)]


@pytest.mark.parametrize(("step", "nth"), STEPS)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_full_disk_leaves_no_partial_file(
    step: str, nth: int, overwrite: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with opened(tmp_path) as tier:
            if overwrite:
                await tier.write(key(1), content(1, 5000))
            refused = pytest.raises(TierError, match="No space left on device; not stored")
            with failing(monkeypatch, step, errno.ENOSPC, nth), refused:
                await tier.write(key(1), content(2, 6000))
            assert tier.stats.errors == 1
            assert tier.stats.used_bytes == bytes_in(tmp_path)
            assert tier.stats.objects == len(files_in(tmp_path))
            if tier.stats.objects:
                await expect(tier, key(1), content(1, 5000))
            else:
                await expect_miss(tier, key(1))
            await tier.write(key(1), content(3, 100))
            await expect(tier, key(1), content(3, 100))

    asyncio.run(main())


def test_a_file_that_the_system_cuts_short(tmp_path: Path) -> None:
    """No patched function here: the kernel takes half of a write and refuses the rest."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    async def main() -> None:
        async with opened(tmp_path) as tier:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
            try:
                with pytest.raises(TierError, match="File too large"):
                    await tier.write(key(1), content(1, 2 << 20))
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            assert bytes_in(tmp_path) == 0
            await expect_miss(tier, key(1))

    asyncio.run(main())


def test_a_disk_that_cannot_be_read_is_an_error_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with opened(tmp_path) as tier:
            await tier.write(key(1), content(1, 5000))
            refused = pytest.raises(TierError, match="Input/output error")
            with failing(monkeypatch, "readv", errno.EIO), refused as caught:
                await get(tier, key(1), 5000)
            assert not isinstance(caught.value, TierMissError)
            await expect(tier, key(1), content(1, 5000))

    asyncio.run(main())


def test_short_reads_and_writes_of_the_system_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write: Callable[[int, memoryview], int] = os.write
    readv: Callable[[int, list[memoryview]], int] = os.readv
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:777]))
    monkeypatch.setattr(os, "readv", lambda fd, parts: readv(fd, [parts[0][:555]]))

    async def main() -> None:
        async with opened(tmp_path) as tier:
            await tier.write(key(1), content(1, 5000))
            await expect(tier, key(1), content(1, 5000))

    asyncio.run(main())


def test_bytes_are_synced_before_their_name_and_the_name_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test can cut the power; the order of the calls is what a disk's promises rest on."""
    calls: list[str] = []
    fsync, rename = os.fsync, os.rename

    def noted_fsync(descriptor: int) -> None:
        kind = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        calls.append(f"sync {kind} {Path(os.readlink(f'/proc/self/fd/{descriptor}')).parent.name}")
        fsync(descriptor)

    def noted_rename(source: Path, target: Path) -> None:
        calls.append(f"rename {source.parent.name}")
        rename(source, target)

    async def main() -> None:
        async with opened(tmp_path) as tier:
            monkeypatch.setattr(os, "fsync", noted_fsync)
            monkeypatch.setattr(os, "rename", noted_rename)
            await tier.write(key(1), content(1, 5000))
            assert calls == ["sync file temporary", "rename temporary", "sync directory objects-v1"]

    asyncio.run(main())


def test_a_corrupt_file_that_was_replaced_meanwhile_is_kept(tmp_path: Path) -> None:
    async def main() -> None:
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

    asyncio.run(main())


def test_an_object_that_is_written_again_while_it_is_evicted_stays(tmp_path: Path) -> None:
    async def main() -> None:
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

    asyncio.run(main())


def test_writes_of_one_key_take_turns(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as tier:
            async with tier._locks.of(name_of(key_bytes(key(1)))):
                write = asyncio.ensure_future(tier.write(key(1), content(1, 500)))
                await tier.write(key(2), content(2, 500))
                await asyncio.wait([write], timeout=0.02)
                assert not write.done()
            await write
            await expect(tier, key(1), content(1, 500))

    asyncio.run(main())


def test_what_is_used_while_its_eviction_waits_is_not_evicted(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path, ROOM_FOR_THREE) as tier:
            await fill_three(tier)
            async with tier._locks.of(name_of(key_bytes(key(0)))):
                write = asyncio.ensure_future(tier.write(key(3), content(3, 1000)))
                await asyncio.wait([write], timeout=0.02)
                assert await tier.probe([key(0)]) == 1
            await write
            assert await there(tier, 0, 1, 2, 3) == [0, 2, 3]

    asyncio.run(main())


# kill -9.

KILLS = 10
VERSIONS_A_KILL = 1_000_000


def test_a_killed_writer_loses_nothing_acknowledged(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    acknowledged: dict[int, int] = {}
    for kill in range(KILLS):
        what = f"seed {seed}, kill {kill}"
        # Every third dies somewhere between its start and its first writes.
        from_start = kill % 3 == 2
        delay_s = chance.uniform(0, 0.6 if from_start else 0.06)
        first = kill * VERSIONS_A_KILL
        acknowledged |= kill_a_writer(tmp_path, first, delay_s, from_start=from_start)
        asyncio.run(check_after_kill(tmp_path, acknowledged, what))
    assert acknowledged


def kill_a_writer(
    directory: Path, first: int, delay_s: float, *, from_start: bool
) -> dict[int, int]:
    """Return the newest version of each key that was acknowledged before the kill."""
    command = [sys.executable, "-m", "tests.benchserver.refserver.tiers.killed_writer"]
    command += [str(directory), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        if not from_start:
            assert select.select([child.stdout], [], [], 60)[0], "the writer did not start"
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(delay_s)
        child.send_signal(signal.SIGKILL)
        lines = child.stdout.read().split(b"\n")[:-1]
    # Later lines replace earlier ones of the same key.
    return {int(number): int(version) for number, version in map(bytes.split, lines)}


async def check_after_kill(directory: Path, acknowledged: dict[int, int], what: str) -> None:
    """Expect every object whole, and none older than what was acknowledged."""
    async with opened(directory) as tier:
        assert tier.stats.used_bytes == bytes_in(directory), what
        for number in range(KEYS):
            if not await tier.probe([key(number)]):
                assert number not in acknowledged, f"{what}: key {number} is lost"
                continue
            seen = await get(tier, key(number), NBYTES)
            version = version_of(seen)
            assert seen == payload(number, version), f"{what}: key {number}"
            assert version >= acknowledged.get(number, 0), f"{what}: key {number} is old"
        assert tier.stats.corrupt == tier.stats.misses == 0, what

"""Disks that refuse, and servers that are killed."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import re
import resource
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchserver.errors import UsageError
from benchserver.refserver.tiers.config import FsConfig
from benchserver.refserver.tiers.fs.tier import FsTier
from benchserver.refserver.tiers.tier import TierError, TierMissError
from tests.benchserver.refserver.tiers.conformance import content, expect, expect_miss, get, key
from tests.benchserver.refserver.tiers.fs.directory import bytes_in, file_of, files_in, opened
from tests.benchserver.refserver.tiers.fs.killed_writer import KEYS, NBYTES, payload, version_of

pytestmark = pytest.mark.usefixtures("leak_free")


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


@pytest.mark.asyncio
@pytest.mark.parametrize(("step", "nth"), STEPS)
@pytest.mark.parametrize("overwrite", [False, True])
async def test_a_full_disk_leaves_no_partial_file(
    step: str, nth: int, overwrite: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.asyncio
async def test_a_file_that_the_system_cuts_short(tmp_path: Path) -> None:
    """No patched function here: the kernel takes half of a write and refuses the rest."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    async with opened(tmp_path) as tier:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
        try:
            with pytest.raises(TierError, match="File too large"):
                await tier.write(key(1), content(1, 2 << 20))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert bytes_in(tmp_path) == 0
        await expect_miss(tier, key(1))


@pytest.mark.asyncio
async def test_a_disk_that_cannot_be_read_is_an_error_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as tier:
        await tier.write(key(1), content(1, 5000))
        refused = pytest.raises(TierError, match="Input/output error")
        with failing(monkeypatch, "readv", errno.EIO), refused as caught:
            await get(tier, key(1), 5000)
        assert not isinstance(caught.value, TierMissError)
        await expect(tier, key(1), content(1, 5000))


@pytest.mark.asyncio
async def test_short_reads_and_writes_of_the_system_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write: Callable[[int, memoryview], int] = os.write
    readv: Callable[[int, list[memoryview]], int] = os.readv
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:777]))
    monkeypatch.setattr(os, "readv", lambda fd, parts: readv(fd, [parts[0][:555]]))

    async with opened(tmp_path) as tier:
        await tier.write(key(1), content(1, 5000))
        await expect(tier, key(1), content(1, 5000))


@pytest.mark.asyncio
async def test_bytes_are_synced_before_their_name_and_the_name_before_the_answer(
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

    async with opened(tmp_path) as tier:
        monkeypatch.setattr(os, "fsync", noted_fsync)
        monkeypatch.setattr(os, "rename", noted_rename)
        await tier.write(key(1), content(1, 5000))
        assert calls == ["sync file temporary", "rename temporary", "sync directory objects-v1"]


# kill -9.

KILLS = 10
VERSIONS_A_KILL = 1_000_000


@pytest.mark.asyncio
async def test_a_killed_writer_loses_nothing_acknowledged(tmp_path: Path) -> None:
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
        await check_after_kill(tmp_path, acknowledged, what)
    assert acknowledged


def kill_a_writer(
    directory: Path, first: int, delay_s: float, *, from_start: bool
) -> dict[int, int]:
    """Return the newest version of each key that was acknowledged before the kill."""
    command = [sys.executable, "-m", "tests.benchserver.refserver.tiers.fs.killed_writer"]
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


@pytest.mark.asyncio
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
async def test_what_is_no_file_holds_nobody_up(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    async with opened(tmp_path) as tier:
        await tier.write(key(1), content(1, 5000))
        path = file_of(tmp_path, key(1))
        path.unlink()
        make(path)
        with pytest.raises(TierError):
            await asyncio.wait_for(tier.read(key(1), memoryview(bytearray(5000))), 5)
        assert tier.stats.corrupt == 1


@pytest.mark.asyncio
async def test_a_pipe_in_the_place_of_a_file_goes_at_the_start(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    path = file_of(tmp_path, key(1))
    os.mkfifo(path)
    async with opened(tmp_path) as tier:
        assert not path.exists()
        assert tier.stats.corrupt == 1


@pytest.mark.asyncio
async def test_what_cannot_be_read_now_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a descriptor, or a right, to look at it, a file may be as sound as ever."""

    async with opened(tmp_path) as tier:
        await tier.write(key(1), content(1, 5000))
    path, really_open = file_of(tmp_path, key(1)), os.open

    def refuse(which: Path, flags: int, mode: int = 0o777) -> int:
        if which == path:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(which))
        return really_open(which, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UsageError, match=re.escape(f"Too many open files ({path})")):
        FsTier(FsConfig(directory=tmp_path))
    assert path.exists()


@pytest.mark.asyncio
async def test_a_link_in_the_place_of_a_file_goes_and_what_it_leads_to_stays(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "d"):
        pass
    precious = tmp_path / "precious"
    precious.write_text("mine")
    path = file_of(tmp_path / "d", key(1))
    path.symlink_to(precious)
    async with opened(tmp_path / "d") as tier:
        assert not path.is_symlink()
        assert tier.stats.corrupt == 1
        assert precious.read_text() == "mine"


@pytest.mark.asyncio
async def test_what_keeps_a_directory_from_being_opened_is_named(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    path = file_of(tmp_path, key(1))
    path.mkdir()
    with pytest.raises(UsageError, match=re.escape(f"Is a directory ({path})")):
        async with opened(tmp_path):
            pass

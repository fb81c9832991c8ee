"""Shared segments: named only for a moment, fully allocated, and swept only when orphaned."""

from __future__ import annotations

import errno
import mmap
import os
import re
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchserver import shmnames
from benchserver.errors import FatalError, WorkCancelledError
from benchserver.kv.host import segment as segment_module
from benchserver.kv.host.segment import (
    SharedSegment,
    available_memory_bytes,
    free_bytes,
    require_room,
)
from benchserver.shmnames import SHM_DIR, sweep_stale

pytestmark = pytest.mark.usefixtures("leak_free")

NAME = f"bench_server_{os.getpid()}_00ff_r0"


@pytest.fixture
def segment() -> Iterator[SharedSegment]:
    made = SharedSegment(10_000, threading.Event())
    yield made
    made.close()


def test_a_segment_has_no_name_and_holds_zeros() -> None:
    before = set(os.listdir(SHM_DIR))
    made = SharedSegment(10_000, threading.Event())
    ours = {name for name in set(os.listdir(SHM_DIR)) - before if str(os.getpid()) in name}
    assert ours == set()
    with made.buffer as view:
        assert view.nbytes == made.nbytes == 10_000
        assert not view.readonly
        assert bytes(view) == bytes(10_000)
    made.close()


def test_a_segment_is_allocated_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_module, "_ALLOCATION_STEP_BYTES", 4096)
    made = SharedSegment(3 * 4096 + 1, threading.Event())
    made.link(NAME)
    assert (SHM_DIR / NAME).stat().st_size == 3 * 4096 + 1
    assert (SHM_DIR / NAME).stat().st_blocks * 512 >= 4 * 4096
    made.close()


def test_a_name_shows_the_same_memory_to_its_owner_alone(segment: SharedSegment) -> None:
    segment.link(NAME)
    with segment.buffer as view:
        view[17:20] = b"abc"
    assert (SHM_DIR / NAME).read_bytes()[17:20] == b"abc"
    assert stat.S_IMODE((SHM_DIR / NAME).stat().st_mode) == 0o600
    with (SHM_DIR / NAME).open("r+b") as file:
        file.seek(5)
        file.write(b"peer")
    with segment.buffer as view:
        assert bytes(view[5:9]) == b"peer"


def test_no_sweep_takes_the_name_of_a_segment_that_is_held(segment: SharedSegment) -> None:
    foreign = "bench_server_4194303_00ff_r0"  # as of a process in another container
    segment.link(foreign)
    assert foreign not in sweep_stale()
    assert (SHM_DIR / foreign).exists()
    segment.close()
    assert not (SHM_DIR / foreign).exists()


def test_unlink_takes_the_name_and_leaves_the_memory(segment: SharedSegment) -> None:
    segment.unlink()
    segment.link(NAME)
    segment.unlink()
    assert not (SHM_DIR / NAME).exists()
    with segment.buffer as view:
        view[0] = 1
    segment.unlink()


def test_unlink_of_a_name_that_another_took_away(segment: SharedSegment) -> None:
    segment.link(NAME)
    (SHM_DIR / NAME).unlink()
    segment.unlink()
    with segment.buffer as view:
        view[0] = 1
    segment.close()
    with pytest.raises(ValueError, match="mmap closed"):
        _ = segment.buffer


def test_close_takes_the_name_even_with_a_view_open() -> None:
    made = SharedSegment(4096, threading.Event())
    made.link(NAME)
    view = made.buffer
    made.close()
    assert not (SHM_DIR / NAME).exists()
    view[0] = 1
    view.release()
    made.close()


@pytest.mark.parametrize("name", ["release", "close"])
def test_the_memory_is_freed_though_a_server_keeps_its_mapping(name: str) -> None:
    made = SharedSegment(3 * 4096, threading.Event())
    made.link(NAME)
    with (SHM_DIR / NAME).open("r+b") as file, mmap.mmap(file.fileno(), 3 * 4096) as servers:
        with made.buffer as view:
            view[:] = b"x" * view.nbytes
        assert servers[4096] == ord("x")
        getattr(made, name)()
        assert not (SHM_DIR / NAME).exists()
        assert os.fstat(file.fileno()).st_blocks == 0
        assert servers[:] == bytes(3 * 4096)
    made.close()
    made.release()


def test_a_taken_name_is_refused_and_left_alone(segment: SharedSegment) -> None:
    (SHM_DIR / NAME).write_bytes(b"theirs")
    try:
        with pytest.raises(FatalError, match=f"cannot name the segment /dev/shm/{NAME}: File ex"):
            segment.link(NAME)
        segment.unlink()
        assert (SHM_DIR / NAME).read_bytes() == b"theirs"
    finally:
        (SHM_DIR / NAME).unlink()


def test_more_than_is_free_is_refused_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the check this would fill all memory: nothing may be allocated here.
    monkeypatch.setattr(os, "posix_fallocate", failing_with(errno.EPERM))
    asked = free_bytes() + (1 << 40)
    with pytest.raises(FatalError) as caught:
        SharedSegment(asked, threading.Event())
    match = re.fullmatch(
        r"shared memory: (\d+) bytes asked for, (\d+) bytes free in /dev/shm; use a smaller "
        r"--kvcache-shape-spec or --tp-size, or enlarge /dev/shm",
        str(caught.value),
    )
    assert match
    assert int(match[1]) == asked
    assert int(match[2]) < asked


def test_exactly_what_is_free_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_module, "free_bytes", lambda: 4096)
    SharedSegment(4096, threading.Event()).close()
    with pytest.raises(FatalError, match="4097 bytes asked for, 4096 bytes free"):
        SharedSegment(4097, threading.Event())


def write_limits(
    monkeypatch: pytest.MonkeyPatch, path: Path, *, meminfo: str = "", **cgroup: str
) -> None:
    """Let the kernel's files say this; a file of the control group that is not named is absent."""
    (path / "meminfo").write_text(meminfo)
    for name, text in cgroup.items():
        (path / f"memory.{name}").write_text(text)
    monkeypatch.setattr(segment_module, "_MEMINFO", path / "meminfo")
    monkeypatch.setattr(segment_module, "_CGROUP", path)


MEMINFO = "MemTotal:  9000 kB\nMemFree:  10 kB\nMemAvailable:     8000 kB\n"


@pytest.mark.parametrize(
    ("meminfo", "cgroup", "available"),
    [
        (MEMINFO, {}, 8000 * 1024),
        (MEMINFO, {"max": "max\n", "current": "5\n", "stat": "inactive_file 0\n"}, 8000 * 1024),
        (MEMINFO, {"max": "9999\n", "current": "x"}, 8000 * 1024),
        (MEMINFO, {"max": "9999\n", "current": "1\n", "stat": "anon 1\n"}, 8000 * 1024),
        (MEMINFO, {"max": "9000\n", "current": "5000\n", "stat": "inactive_file 0\n"}, 4000),
        # Pages of files are given up for us.
        (MEMINFO, {"max": "9000\n", "current": "9000\n", "stat": "inactive_file 500\n"}, 500),
        ("", {"max": "9000\n", "current": "8999\n", "stat": "anon 7\ninactive_file 0\n"}, 1),
        ("", {}, sys.maxsize),
    ],
)
def test_memory_that_is_available(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    meminfo: str,
    cgroup: dict[str, str],
    available: int,
) -> None:
    write_limits(monkeypatch, tmp_path, meminfo=meminfo, **cgroup)
    assert available_memory_bytes() == available


def test_room_in_the_memory_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_limits(monkeypatch, tmp_path, meminfo="MemAvailable: 8 kB\n")
    require_room(8192)
    reason = "^shared memory: 8193 bytes asked for, 8192 bytes of memory available; use a smaller"
    monkeypatch.setattr(os, "posix_fallocate", failing_with(errno.EPERM))
    for work in (require_room, lambda nbytes: SharedSegment(nbytes, threading.Event())):
        with pytest.raises(FatalError, match=reason):
            work(8193)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOMEM, errno.EFBIG])
def test_running_full_while_allocating(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(os, "posix_fallocate", failing_with(number))
    with pytest.raises(FatalError, match=r"8192 bytes asked for, \d+ bytes free"):
        SharedSegment(8192, threading.Event())


def test_another_error_while_allocating(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_fallocate", failing_with(errno.EIO))
    with pytest.raises(FatalError, match=r"cannot allocate 8192 bytes: .*Input/output error"):
        SharedSegment(8192, threading.Event())


def failing_with(number: int) -> Callable[[int, int, int], None]:
    def fail(fd: int, offset: int, length: int) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_cancel_stops_the_allocation_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    cancel, done = threading.Event(), list[tuple[int, int]]()

    def allocate(fd: int, offset: int, length: int) -> None:
        done.append((offset, length))
        if len(done) == 2:
            cancel.set()

    monkeypatch.setattr(segment_module, "_ALLOCATION_STEP_BYTES", 4096)
    monkeypatch.setattr(os, "posix_fallocate", allocate)
    with pytest.raises(WorkCancelledError):
        SharedSegment(100 * 4096, cancel)
    assert done == [(0, 4096), (4096, 4096)]


def test_no_shared_memory_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shmnames, "SHM_DIR", Path("/nonexistent"))
    with pytest.raises(FatalError, match="cannot make a segment in /nonexistent: No such file"):
        SharedSegment(4096, threading.Event())
    with pytest.raises(FatalError, match="/nonexistent: No such file"):
        free_bytes()

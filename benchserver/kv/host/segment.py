"""POSIX shared-memory segments that the client owns, and that no crash leaves behind.

A segment is made without a name (an unnamed file on the shared-memory file system), fully
preallocated, so that a full /dev/shm is an error and not a SIGBUS.  It gets a name only for as
long as a server needs to map it, and names of dead processes are swept at the next start
(`benchserver.shmnames`).
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import sys
import threading
from pathlib import Path

from benchserver import shmnames
from benchserver.errors import FatalError, WorkCancelledError

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_ALLOCATION_STEP_BYTES = 128 << 20
"""Preallocation stops to look for a Ctrl-C this often; about 50 ms of zeroing."""


class SharedSegment:
    """An unnamed, preallocated, zeroed segment, mapped read-write."""

    def __init__(self, nbytes: int, cancel: threading.Event) -> None:
        """Make a segment of `nbytes` bytes.

        Raises FatalError if /dev/shm lacks the room, WorkCancelledError once `cancel` is set.
        """
        self.nbytes = nbytes
        self._name = ""
        self._fd = _open_unnamed()
        try:
            _preallocate(self._fd, nbytes, cancel)
            self._map = mmap.mmap(self._fd, nbytes)
        except OSError as error:
            os.close(self._fd)
            raise FatalError(
                f"shared memory: cannot map {nbytes} bytes: {error.strerror}; see `ulimit -v`, or "
                "use a smaller --kvcache-shape-spec or --tp-size"
            ) from error
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def buffer(self) -> memoryview:
        """Return the writable memory; release every view before `close`."""
        return memoryview(self._map)

    def link(self, name: str) -> None:
        """Give the segment a name, so that a server can map it."""
        # Known before it is there: a handler of signals may take it away right after.
        self._name = name
        try:
            shmnames.give_name(self._fd, name)
        except OSError as error:
            self._name = ""
            raise FatalError(
                f"shared memory: cannot name the segment "
                f"{shmnames.SHM_DIR / name}: {error.strerror}"
            ) from error

    def unlink(self) -> None:
        """Take the name away; mappings stay valid.  Does nothing without a name."""
        if self._name:
            shmnames.take_name(self._name)
            self._name = ""

    def release(self) -> None:
        """Take the name away and free the memory; what still maps it finds zeros.

        Every page is freed, not just unmapped: a 0.5.6 server keeps its mapping after UNREGISTER
        (measured), and would hold the memory until it ends.
        """
        self.unlink()
        with contextlib.suppress(OSError, ValueError):  # closed already, or not supported
            self._map.madvise(mmap.MADV_REMOVE)

    def close(self) -> None:
        """Release the segment and unmap it."""
        self.release()
        # A cancelled thread may still hold a view; the memory goes with it.
        with contextlib.suppress(BufferError):
            self._map.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _open_unnamed() -> int:
    try:
        return shmnames.open_unnamed()
    except OSError as error:
        advice = "close files, or raise `ulimit -n`"
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            advice = "a Linux tmpfs is needed there"
        raise FatalError(
            f"shared memory: cannot make a segment in {shmnames.SHM_DIR}: "
            f"{error.strerror}; {advice}"
        ) from error


def _preallocate(fd: int, nbytes: int, cancel: threading.Event) -> None:
    require_room(nbytes)
    free = free_bytes()
    try:
        for start in range(0, nbytes, _ALLOCATION_STEP_BYTES):
            if cancel.is_set():
                raise WorkCancelledError
            os.posix_fallocate(fd, start, min(_ALLOCATION_STEP_BYTES, nbytes - start))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.ENOMEM, errno.EFBIG):
            raise _no_room(nbytes, free) from error
        raise FatalError(f"shared memory: cannot allocate {nbytes} bytes: {error}") from error


def require_room(nbytes: int) -> None:
    """Raise FatalError unless /dev/shm, and the memory behind it, have this much left.

    A tmpfs may be larger than the memory: filling it then ends in the kernel killing processes.
    """
    free = free_bytes()
    if nbytes > free:
        raise _no_room(nbytes, free)
    available = available_memory_bytes()
    if nbytes > available:
        raise FatalError(
            f"shared memory: {nbytes} bytes asked for, {available} bytes of memory available; "
            "use a smaller --kvcache-shape-spec or --tp-size"
        )


def available_memory_bytes() -> int:
    """Return what the kernel, and this control group, would still give out."""
    return min(_meminfo_available(), _cgroup_available())


def _meminfo_available() -> int:
    for line in _MEMINFO.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return sys.maxsize


def _cgroup_available() -> int:
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        lines = (_CGROUP / "memory.stat").read_text().splitlines()
        # The cache of files is counted as used, but the kernel gives it up for us.
        used -= int(dict(line.split() for line in lines)["inactive_file"])
    except (OSError, ValueError, KeyError):
        return sys.maxsize
    return int(limit) - used if limit.isdecimal() else sys.maxsize


def free_bytes() -> int:
    """Return how many bytes /dev/shm has left."""
    try:
        stat = os.statvfs(shmnames.SHM_DIR)
    except OSError as error:
        raise FatalError(f"shared memory: {shmnames.SHM_DIR}: {error.strerror}") from error
    return stat.f_bavail * stat.f_frsize


def _no_room(nbytes: int, free: int) -> FatalError:
    return FatalError(
        f"shared memory: {nbytes} bytes asked for, {free} bytes free in {shmnames.SHM_DIR}; "
        "use a smaller --kvcache-shape-spec or --tp-size, or enlarge /dev/shm"
    )

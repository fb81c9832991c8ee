"""Names in /dev/shm: ours go with their process, and no living process loses one to another.

A file is made without a name and locked (flock) before it gets one, and its owner keeps it open.
The kernel gives the lock back when the owner is gone, however it went.  So a file that can be
locked belongs to nobody; a pid says less, since a process of another container that shares
/dev/shm has a pid that looks dead, or like another process, from here.  The next run of a bench
sweeps what belongs to nobody.

What lies there may be anybody's making: regular files alone are opened, and nothing waits.
On Linux, shm_open(3) of "/name" opens /dev/shm/name; that is what a server does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

SHM_DIR = Path("/dev/shm")
_NAME = re.compile(r"bench_server_([0-9]{1,10})_[0-9a-f]{1,32}_r[0-9]{1,6}")

_MAX_SWEPT = 4096
"""So many names one start looks at: a killed run leaves one a worker, for moments alone."""

_MARK = b"bench-server mark 1\n"
_NOTE = re.compile(r"([0-9]{1,20}) ([A-Za-z0-9_.]{1,200})")
_MAX_MARK_BYTES = 1 << 16
"""A process has two files of CUDA and torch, or a few more."""


@dataclass(frozen=True, slots=True)
class Beside:
    """A file that is not ours by its name, but was made for a process of ours."""

    inode: int
    name: str


def segment_name(nonce: str, number: int) -> str:
    """Return the name of one worker's segment, or of a mark; it carries our pid, for people."""
    return f"bench_server_{os.getpid()}_{nonce}_r{number}"


def open_unnamed() -> int:
    """Return a descriptor of a new file in /dev/shm without a name, locked; OSError if none."""
    descriptor = os.open(SHM_DIR, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def give_name(descriptor: int, name: str) -> None:
    """Give an unnamed file a name; OSError if it is taken or cannot be given."""
    # With a directory descriptor Python calls linkat(2), which follows /proc's link.
    with _opened_directory() as directory:
        os.link(f"/proc/self/fd/{descriptor}", name, dst_dir_fd=directory)


def take_name(name: str) -> None:
    """Take a name away, if it is there."""
    (SHM_DIR / name).unlink(missing_ok=True)


def write_mark(descriptor: int, files: Iterable[Beside]) -> None:
    """Make a file a mark: it says what else goes with its process; OSError if it cannot."""
    lines = "".join(f"{file.inode} {file.name}\n" for file in files).encode()
    content = (_MARK + lines)[:_MAX_MARK_BYTES]
    os.pwrite(descriptor, content, 0)
    os.ftruncate(descriptor, len(content))


def made_for(pid: int, name: str) -> bool:
    """Tell whether a name is one that torch or the CUDA driver gives, for a process of this pid.

    torch counts in `torch_PID_N_N` who uses what it shares.  The driver keeps the events that
    other processes may open in `cuda.shm.UID.PID.N`, the pid in hexadecimal; the file stays even
    after an orderly end (measured with driver 580).
    """
    return counter_of(pid, name) or event_of(pid, name)


def counter_of(pid: int, name: str) -> bool:
    """Tell whether a name is one of torch's."""
    return re.fullmatch(rf"torch_{pid}_[0-9]+_[0-9]+", name) is not None


def event_of(pid: int, name: str) -> bool:
    """Tell whether a name is one of the driver's."""
    return re.fullmatch(rf"cuda\.shm\.[0-9a-f]+\.{pid:x}\.[0-9]+", name) is not None


def remove_beside(files: Iterable[Beside]) -> None:
    """Remove files if they are still the same, except those that the system refuses."""
    for file in files:
        path = SHM_DIR / file.name
        with contextlib.suppress(OSError):
            if _is_that(os.lstat(path), file.inode):
                path.unlink()


def sweep_stale() -> tuple[str, ...]:
    """Remove what processes of ours that are gone left here; return the names of ours.

    With a mark go the files of CUDA and torch that it lists, and no others: another process,
    ours or not, may have the same pid.
    """
    found = (name for name in _names_here() if _NAME.fullmatch(name))
    return tuple(name for name in islice(found, _MAX_SWEPT) if _sweep(name))


def _names_here() -> Iterator[str]:
    with contextlib.suppress(OSError), os.scandir(SHM_DIR) as entries:
        # Not opened, if it is not a file: a pipe would wait for its other end.
        yield from [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]


def _sweep(name: str) -> bool:
    """Remove a file of nobody's, and what it lists; tell whether it was one."""
    path, match = SHM_DIR / name, _NAME.fullmatch(name)
    assert match is not None
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except OSError:
        return False  # gone, or another user's, or not a file any more
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_that(os.lstat(path), status.st_ino):
            return False
        remove_beside(_listed(descriptor, int(match.group(1))))
        path.unlink()
    except OSError:
        return False  # its process lives, or another bench was faster, or may remove it alone
    finally:
        os.close(descriptor)
    return True


def _is_that(status: os.stat_result, inode: int) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_ino == inode


def _listed(descriptor: int, pid: int) -> list[Beside]:
    """Return what a mark lists; nothing for a segment, whose content is KV."""
    content = os.pread(descriptor, _MAX_MARK_BYTES, 0)
    if not content.startswith(_MARK):
        return []
    lines = content.removeprefix(_MARK).decode("utf-8", "replace").splitlines()
    matches = [match for line in lines if (match := _NOTE.fullmatch(line))]
    # The writer of such a file cannot make us remove anything else.
    return [Beside(int(m[1]), m[2]) for m in matches if made_for(pid, m[2])]


@contextlib.contextmanager
def _opened_directory() -> Iterator[int]:
    directory = os.open(SHM_DIR, os.O_DIRECTORY | os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield directory
    finally:
        os.close(directory)

"""What a process that exports GPU memory leaves in /dev/shm when it is killed, and whose it was.

torch counts there who uses what it shares (`torch_PID_...`), and the CUDA driver keeps the events
that other processes may open (`cuda.shm.UID.PID.N`, the pid in hexadecimal; it stays even after
an orderly end, measured with driver 580).  A mark, an empty file with a name of ours, says that
the process was a bench-server, so that `segment.sweep_stale` may remove the others with it at the
next start.  It is locked for as long as its process lives: a process of another container that
shares /dev/shm has a pid that looks dead from here.  Files only; knows neither torch nor CUDA.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import secrets
from pathlib import Path

from benchserver.kv import segment

_TOKEN_BYTES = 8

_marks: list[ProcessMark] = []
"""Every mark that this process has ever placed: one a pool."""


class ProcessMark:
    """One memory's mark, from its making on."""

    def __init__(self, number: int) -> None:
        """`number`, of a device, ends the mark's name."""
        name = segment.segment_name(secrets.token_hex(_TOKEN_BYTES), number)
        self._path = segment.SHM_DIR / name
        self._descriptor = -1
        remove_events_at_exit()
        # Without a mark there is only more to clean up by hand after a crash.
        with contextlib.suppress(OSError):
            flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _marks.append(self)

    def remove(self) -> None:
        """Take the mark away."""
        if self._descriptor < 0:
            return
        self._path.unlink(missing_ok=True)
        # A thread may be at it, too, while the process leaves.
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


@functools.cache
def remove_events_at_exit() -> None:
    """Let the files of this process's events go with it, and not before.

    All its events lie in one file; others open it by name, once for each process that does.
    """
    atexit.register(_remove_events_of, os.getpid())


def _remove_events_of(pid: int) -> None:
    if os.getpid() == pid:  # no child of it
        remove_files(event_files(pid))


def remove_own_files() -> None:
    """Take away all that this process and its torch have in /dev/shm, before an os._exit.

    torch, which would miss its files, must not come to its own end after this.
    """
    if not _marks:
        return  # it has none; of another container, a process with our pid may have some
    remove_files([*counter_files(os.getpid()), *event_files(os.getpid())])
    for mark in list(_marks):
        mark.remove()


def event_files(pid: int) -> list[Path]:
    """Return the files in which the CUDA driver keeps a process's events for others."""
    return list(segment.SHM_DIR.glob(f"cuda.shm.*.{pid:x}.*"))


def counter_files(pid: int) -> list[Path]:
    """Return the files in which torch counts who uses a process's memory."""
    return list(segment.SHM_DIR.glob(f"torch_{pid}_*"))


def remove_files(files: list[Path]) -> None:
    """Remove files, but for those that are gone or another user's."""
    for path in files:
        with contextlib.suppress(OSError):
            path.unlink()

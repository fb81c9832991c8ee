"""What CUDA and torch leave of this process in /dev/shm, and a mark that says whose it is.

A process that is killed cannot remove its files there.  Its mark, a file of ours, lists them, so
that the next run of a bench removes them with it (`shmnames.sweep_stale`).  Which they are, the
process itself knows best: both keep their files mapped (measured with torch 2.11, driver 580), so
they stand in /proc/self/maps.  A pid alone would not do: a process of another container that
shares /dev/shm may have the same.  Knows neither torch nor CUDA.
"""

from __future__ import annotations

import atexit
import os
import secrets
from contextlib import suppress
from pathlib import Path

from benchserver import shmnames
from benchserver.shmnames import Beside

_TOKEN_BYTES = 8
_MAPS = Path("/proc/self/maps")


class _Mark:
    """The mark of one process; a child of it has none."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.noted: list[Beside] = []
        self._name = shmnames.segment_name(secrets.token_hex(_TOKEN_BYTES), 0)
        self.descriptor = -1
        # Without a mark there is only more to clean up by hand after a crash.
        with suppress(OSError):
            self.descriptor = shmnames.open_unnamed()
            shmnames.write_mark(self.descriptor, ())
            shmnames.give_name(self.descriptor, self._name)

    def remove(self) -> None:
        with suppress(OSError):
            shmnames.take_name(self._name)
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


_mark: _Mark | None = None


def place() -> None:
    """Mark this process, once, as one whose files in /dev/shm go with it."""
    global _mark
    if _mark is None or _mark.pid != os.getpid():
        _mark = _Mark()
        atexit.register(_remove_at_exit, _mark)


def note() -> None:
    """List in the mark what CUDA and torch have made by now.

    Takes about a millisecond: after what makes files, a first export or event, not each time.
    """
    mark = _own_mark()
    if mark is None or mark.descriptor < 0:
        return
    files = _own_files()
    if files != mark.noted:
        with suppress(OSError):
            shmnames.write_mark(mark.descriptor, files)
            mark.noted = files


def remove_own_files() -> None:
    """Take away all that this process and its torch have in /dev/shm, before an os._exit.

    After this the process must leave at once: torch's own end would miss its files.
    """
    global _mark
    mark = _own_mark()
    if mark is not None:
        shmnames.remove_beside(_own_files())
        mark.remove()
        _mark = None


def _remove_at_exit(mark: _Mark) -> None:
    """Remove the driver's files, which others open by name until now; torch removes its own."""
    if mark.pid == os.getpid():  # no child of it
        events = [file for file in _own_files() if shmnames.event_of(mark.pid, file.name)]
        shmnames.remove_beside(events)
        mark.remove()


def _own_mark() -> _Mark | None:
    return _mark if _mark is not None and _mark.pid == os.getpid() else None


def _own_files() -> list[Beside]:
    """Return the files of CUDA and torch that were made for this process: it has them mapped."""
    folder = f"{shmnames.SHM_DIR}/"
    files = {}
    with suppress(OSError):
        for line in _MAPS.read_text(errors="replace").splitlines():
            _, found, name = line.partition(folder)
            if found and shmnames.made_for(os.getpid(), name):
                with suppress(OSError):  # removed meanwhile
                    files[name] = Beside(os.lstat(folder + name).st_ino, name)
    return [files[name] for name in sorted(files)]

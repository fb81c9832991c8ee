"""What CUDA leaves of this process in /dev/shm, and a mark that says whose it is.

The CUDA driver keeps the events that clients open in a file of its own, and leaves it for good,
even after an orderly end (measured with driver 580): `cuda.shm.UID.PID.N`, the pid in hexadecimal.
It goes with this process, and not before: every new client opens it by name.  The mark, an empty
file, is for a server that is killed: the next run of a bench on this machine removes what has the
pid of a mark whose process is gone.  It is locked as long as this process lives, for a process of
another container that shares /dev/shm has a pid that looks dead from there.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import os
import secrets
from contextlib import suppress
from pathlib import Path

_SHM_DIR = Path("/dev/shm")
_TOKEN_BYTES = 8

_marks: dict[int, tuple[Path, int]] = {}
"""The mark and its descriptor, by the pid that made it: a child of this process has none."""


@functools.cache
def place() -> None:
    """Mark this process, once, as one whose files in /dev/shm go with it."""
    pid = os.getpid()
    # The form of name that a run of the bench looks for; the number has no meaning here.
    path = _SHM_DIR / f"bench_server_{pid}_{secrets.token_hex(_TOKEN_BYTES)}_r0"
    atexit.register(remove)
    # Without a mark there is only more to clean up by hand after a crash.
    with suppress(OSError):
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        _marks[pid] = path, descriptor
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def remove() -> None:
    """Remove the mark and all that it stands for: the process ends now."""
    path, descriptor = _marks.pop(os.getpid(), (None, -1))
    for left in _SHM_DIR.glob(f"cuda.shm.*.{os.getpid():x}.*"):
        with suppress(OSError):
            left.unlink()
    if path is not None:
        path.unlink(missing_ok=True)
        os.close(descriptor)

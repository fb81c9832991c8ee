"""POSIX shared-memory segments by name: open, create, remove.

Uses the extension module behind `multiprocessing.shared_memory`, whose own class registers every
segment it merely opens with a tracker that later removes it (before Python 3.13).
"""

from __future__ import annotations

import _posixshmem  # type: ignore[import-not-found]
import os


def open_segment(name: str) -> int:
    """Return a descriptor of an existing segment, for reading and writing; OSError if none.

    What has the name may be a pipe or a device: opening never waits, and the caller looks.
    """
    return int(_posixshmem.shm_open(f"/{name}", os.O_RDWR | os.O_NONBLOCK, mode=0))


def create_segment(name: str) -> int:
    """Return a descriptor of a new, empty segment that only this user may open."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    return int(_posixshmem.shm_open(f"/{name}", flags, mode=0o600))


def unlink_segment(name: str) -> None:
    """Remove a segment's name; a process that has it mapped keeps it."""
    _posixshmem.shm_unlink(f"/{name}")

"""Where chunk objects lie: one block of memory.

It is private, or a POSIX shared-memory segment that clients map.  Which parts of it are free,
`freelist` knows.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from benchserver.errors import FatalError
from benchserver.refserver.store.segments import create_segment, unlink_segment

Bytes = npt.NDArray[np.uint8]


class Arena:
    """Memory for objects, and the name of its segment if clients may map it."""

    def __init__(self, memory: mmap.mmap, *, name: str, unlink: Callable[[], None]) -> None:
        self.name = name
        self.nbytes = len(memory)
        self._memory = memory
        self._unlink = unlink

    def view(self, offset: int, nbytes: int) -> Bytes:
        """Return the bytes of one object, as an array that writes through."""
        return np.frombuffer(self._memory, dtype=np.uint8, count=nbytes, offset=offset)

    def close(self) -> None:
        """Unlink the segment, if there is one, and unmap the memory."""
        try:
            self._unlink()
        finally:
            unmap(self._memory)


def unmap(memory: mmap.mmap) -> None:
    """Unmap memory, now or as soon as the last view of it is gone.

    A thread that has just ended a copy may hold its views for an instant longer.
    """
    with suppress(BufferError):
        memory.close()


def _nothing() -> None:
    """Private memory has no name to remove."""


def open_private(nbytes: int) -> Arena:
    """Return an arena that only this process sees; pages are taken as they are used."""
    try:
        memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError, ValueError) as error:
        raise FatalError(f"no memory for an L1 of {nbytes} bytes ({error}); use less") from error
    # The first STORE into an extent pays for its pages: with 4 KiB ones more than for the copy.
    with suppress(OSError):  # a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return Arena(memory, name="", unlink=_nothing)


def create_shared(name: str, nbytes: int) -> Arena:
    """Return an arena in a new shared-memory segment, with all its pages taken.

    Raises FatalError if the segment exists or does not fit; no segment is left then.
    """
    descriptor = _create(name)
    try:
        # Taken now: a page that is missing later would be a SIGBUS, here or in a client.
        os.posix_fallocate(descriptor, 0, nbytes)
        memory = mmap.mmap(descriptor, nbytes)
    except (OSError, OverflowError, ValueError) as error:
        _remove(name)
        raise FatalError(
            f"shared memory /{name} of {nbytes} bytes: {error}; use a smaller L1, "
            "or no shared pool (inline transfer)"
        ) from error
    finally:
        os.close(descriptor)
    return Arena(memory, name=name, unlink=lambda: _remove(name))


def _create(name: str) -> int:
    try:
        return create_segment(name)
    except FileExistsError as error:
        raise FatalError(
            f"shared memory /{name} exists: another server has this name, or one died; "
            f"choose another, or remove /dev/shm/{name}"
        ) from error
    except OSError as error:
        raise FatalError(f"shared memory /{name}: {error}") from error


def _remove(name: str) -> None:
    """Remove a segment's name; one that is gone already is fine."""
    try:
        unlink_segment(name)
    except FileNotFoundError:
        return
    except OSError as error:
        raise FatalError(f"shared memory /{name} cannot be removed: {error}") from error

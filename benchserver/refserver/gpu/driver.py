"""Allocations of other processes, by the CUDA driver's IPC handles that clients send.

The driver opens a handle once in a process; `OpenHandles` counts who uses it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from benchserver.cuda import driver
from benchserver.cuda.driver import DriverError
from benchserver.refserver.refusal import RefusalError


class OpenHandles:
    """The driver handles that are open; any thread may call.

    Raises RefusalError if the driver refuses: memory that is gone, a process of another container.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[int, bytes], tuple[int, int]] = {}
        """Address and number of users, by device and handle."""

    def open(self, ordinal: int, handle: bytes) -> int:
        """Return the address of an allocation; each call needs a `close`."""
        with self._lock:
            pointer, users = self._open.get((ordinal, handle), (0, 0))
            if not users:
                with _driver_of(ordinal):
                    pointer = driver.open_memory(handle)
            self._open[ordinal, handle] = pointer, users + 1
            return pointer

    def close(self, ordinal: int, handle: bytes) -> None:
        """End one use; the last one unmaps the allocation."""
        with self._lock:
            pointer, users = self._open.pop((ordinal, handle))
            if users > 1:
                self._open[ordinal, handle] = pointer, users - 1
                return
            with _driver_of(ordinal):
                driver.close_memory(pointer)


def bytes_behind(ordinal: int, pointer: int) -> int:
    """Return how many bytes of an allocation begin at an address; 0: the driver does not say."""
    try:
        with _driver_of(ordinal):
            base, nbytes = driver.address_range(pointer)
    except RefusalError:
        return 0
    return max(0, base + nbytes - pointer)


@contextmanager
def _driver_of(ordinal: int) -> Iterator[None]:
    """Work in a device's context; RefusalError for what the driver refuses."""
    try:
        with driver.context_of(ordinal):
            yield
    except DriverError as error:
        raise RefusalError(str(error)) from error

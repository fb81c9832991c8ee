"""Memory that objects pass through on their way to another process, which has mapped it too.

Anonymous shared memory: it has no name, so nothing is left behind however the processes end.  Its
pages are taken as they are used.  Never all at once at the start: nothing bounds such memory but
the machine's, and a request that is too large would not fail but end other processes.

Belongs to the event loop; what is done with the bytes of a lease may run in threads.
"""

from __future__ import annotations

import asyncio
import mmap
import os

from benchserver.errors import FatalError
from benchserver.refserver.store.arena import unmap
from benchserver.refserver.store.freelist import NO_ROOM, FreeList
from benchserver.refserver.tiers.tier import TierError


class Lease:
    """A part of the memory; goes back when all who share it have released it."""

    def __init__(self, staging: Staging, offset: int, nbytes: int) -> None:
        self.offset = offset
        self.nbytes = nbytes
        self._staging = staging
        self._users = 1

    @property
    def view(self) -> memoryview:
        """Return the bytes, writable."""
        return self._staging.view(self.offset, self.nbytes)

    def share(self) -> None:
        """Add somebody who will release it too."""
        self._users += 1

    def release(self) -> None:
        """Let go of it; each who shares it does so once."""
        self._users -= 1
        if not self._users:
            self._staging.give_back(self)


class Staging:
    """The memory, and who waits for a part of it, first come, first served."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._free = FreeList(nbytes)
        self._turn = asyncio.Lock()
        self._given = asyncio.Event()
        self.descriptor = os.memfd_create("bench-server-staging", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.descriptor, nbytes)
            self._memory = mmap.mmap(self.descriptor, nbytes)
        except (OSError, OverflowError, ValueError) as error:
            os.close(self.descriptor)
            raise FatalError(
                f"no memory for a staging buffer of {nbytes} bytes ({error}); use less"
            ) from error

    @property
    def free_bytes(self) -> int:
        """Return how many bytes nobody has."""
        return self._free.free_bytes

    def view(self, offset: int, nbytes: int) -> memoryview:
        """Return a part of the memory."""
        return memoryview(self._memory)[offset : offset + nbytes]

    async def lend(self, nbytes: int) -> Lease:
        """Return a part of the memory, as soon as there is one; raises TierError if never."""
        if nbytes > self._free.capacity_bytes:
            raise TierError(
                f"an object of {nbytes} bytes, header included, does not pass through a buffer of "
                f"{self._free.capacity_bytes}"
            )
        async with self._turn:
            while (offset := self._free.take(nbytes)) == NO_ROOM:
                self._given.clear()
                await self._given.wait()
        return Lease(self, offset, nbytes)

    def give_back(self, lease: Lease) -> None:
        """Take back what a lease had."""
        self._free.give(lease.offset, lease.nbytes)
        self._given.set()

    def close(self) -> None:
        """Unmap the memory, now or as soon as the last view of it is gone."""
        os.close(self.descriptor)
        unmap(self._memory)

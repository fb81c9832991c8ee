"""Which parts of a block of memory are free: pure arithmetic, first fit, page-aligned extents."""

from __future__ import annotations

import bisect

ALIGN_BYTES = 4096
"""Objects start at multiples of a page, as in the real server's default."""

NO_ROOM = -1
"""Answer of `FreeList.take` where no free extent is large enough."""


def aligned(nbytes: int) -> int:
    """Return the size that an object of `nbytes` takes in the arena."""
    return -(-nbytes // ALIGN_BYTES) * ALIGN_BYTES


class FreeList:
    """The free extents of an arena, sorted by offset, never adjacent."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes // ALIGN_BYTES * ALIGN_BYTES
        self.free_bytes = self.capacity_bytes
        self._offsets = [0]
        self._sizes = [self.capacity_bytes]

    def take(self, nbytes: int) -> int:
        """Take the first extent that fits and return its offset, or NO_ROOM."""
        size = aligned(nbytes)
        for index, free in enumerate(self._sizes):
            if free >= size:
                return self._cut(index, size)
        return NO_ROOM

    def give(self, offset: int, nbytes: int) -> None:
        """Give back what `take` returned for the same number of bytes."""
        size = aligned(nbytes)
        self.free_bytes += size
        index = bisect.bisect(self._offsets, offset)
        self._offsets.insert(index, offset)
        self._sizes.insert(index, size)
        self._join(index)
        if index:
            self._join(index - 1)

    def _cut(self, index: int, size: int) -> int:
        offset = self._offsets[index]
        self.free_bytes -= size
        self._offsets[index] += size
        self._sizes[index] -= size
        if not self._sizes[index]:
            del self._offsets[index], self._sizes[index]
        return offset

    def _join(self, index: int) -> None:
        """Join an extent with its right neighbour if they touch."""
        if index + 1 >= len(self._offsets):
            return
        if self._offsets[index] + self._sizes[index] == self._offsets[index + 1]:
            self._sizes[index] += self._sizes[index + 1]
            del self._offsets[index + 1], self._sizes[index + 1]

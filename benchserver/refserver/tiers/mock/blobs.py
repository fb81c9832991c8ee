"""Objects in memory, in buffers that are used again: pages never touched before are slow.

Belongs to the event loop; only `fill` and `copy_to` run in threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

MAX_SPARE_BYTES = 256 << 20
"""Some writes' worth of buffers; the rest goes back to the system."""


@dataclass(slots=True, eq=False)
class Blob:
    """The bytes of one object."""

    data: Bytes
    readers: int = 0
    dropped: bool = False

    def fill(self, source: memoryview) -> None:
        """Copy bytes in."""
        np.copyto(self.data, np.frombuffer(source, dtype=np.uint8))

    def copy_to(self, out: memoryview) -> None:
        """Copy bytes out."""
        np.copyto(np.frombuffer(out, dtype=np.uint8), self.data)


class Blobs:
    """Makes blobs, and takes their buffers back when nobody reads them any more."""

    def __init__(self) -> None:
        self.spare_bytes = 0
        self._spare: dict[int, list[Bytes]] = {}

    def new(self, nbytes: int) -> Blob:
        """Return a blob with anything in it."""
        spare = self._spare.get(nbytes)
        if not spare:
            return Blob(np.empty(nbytes, dtype=np.uint8))
        data = spare.pop()
        self.spare_bytes -= nbytes
        if not spare:
            del self._spare[nbytes]
        return Blob(data)

    def drop(self, blob: Blob) -> None:
        """Give a blob up, as soon as nobody reads it."""
        blob.dropped = True
        if not blob.readers:
            self._take_back(blob.data)

    @contextmanager
    def reading(self, blob: Blob) -> Iterator[None]:
        """Keep a blob's bytes as they are while the block runs."""
        blob.readers += 1
        try:
            yield
        finally:
            blob.readers -= 1
            if blob.dropped and not blob.readers:
                self._take_back(blob.data)

    def clear(self) -> None:
        """Let go of the spare buffers."""
        self._spare.clear()
        self.spare_bytes = 0

    def _take_back(self, data: Bytes) -> None:
        if self.spare_bytes + data.nbytes > MAX_SPARE_BYTES and data.nbytes not in self._spare:
            # Sizes have changed: what was spare is not wanted any more.
            self.clear()
        if self.spare_bytes + data.nbytes <= MAX_SPARE_BYTES:
            self._spare.setdefault(data.nbytes, []).append(data)
            self.spare_bytes += data.nbytes

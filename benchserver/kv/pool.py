"""What a worker needs of its KV pool, wherever the memory is: five small interfaces.

Methods block; they are called from worker threads.  On a device, writing is enqueued, not done,
when a method returns; what is called later comes after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from benchserver.kv.blocks import Window
from benchserver.kv.content import PoolContent
from benchserver.kv.pattern import U8
from protocol.handles import KvHandle

Share = tuple[int, int]
"""`(i, n)`: every n-th layer from the i-th on, so that n threads can divide the work."""

WHOLE: Share = (0, 1)

Places = npt.NDArray[np.intp]
"""A row for each page: its layer in the spec, its plane, and its column in the blocks looked at."""


def shares(count: int) -> list[Share]:
    """Return the shares of `count` threads."""
    return [(index, count) for index in range(count)]


class EventError(Exception):
    """A reply's event cannot be opened, is not an event, or did not complete in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Where pages differ from their content.

    `reused`: the blocks still hold what `reuse` made of their content, and were compared with
    that.
    """

    places: Places
    reused: bool = False


class PageWriter(Protocol):
    """Writes the pages of a window's blocks, in a share of the layers."""

    def fill(self, window: Window, digests: Sequence[int], share: Share = WHOLE) -> None:
        """Write the content of the chunks into the window's blocks, which has no canaries."""
        ...

    def poison(self, window: Window, share: Share = WHOLE) -> None:
        """Overwrite the blocks with poison, the canaries with canary bytes."""
        ...

    def reuse(self, window: Window, share: Share = WHOLE) -> None:
        """XOR every byte of the window's blocks with REUSED_MASK; the window has no canaries.

        As an engine gives blocks to another request; but what the blocks held can still be told.
        """
        ...


class PageReader(Protocol):
    """Looks at pages, and tells which are wrong; `benchserver.kv.verify` makes evidence of it."""

    @property
    def content(self) -> PoolContent:
        """Return what the pages must hold."""
        ...

    def compare(
        self, window: Window, digests: Sequence[int], *, skipped: int = 0, reused: bool = False
    ) -> Compared:
        """Compare the blocks of the table, except the first `skipped`, with their content.

        Columns count from the first block that is not skipped.  `reused` blocks are compared with
        what `reuse` made of their content; they may hold their content again when this returns.
        """
        ...

    def not_filled(self, block_ids: Sequence[int], byte: int) -> Places:
        """Return the pages of the blocks that hold anything else than `byte`."""
        ...

    def wrong_guards(self) -> Mapping[int, U8]:
        """Return the bytes of every guard that was written.

        Guard 0 lies before all tensors, guard n + 1 behind that of layer n.
        """
        ...

    def page(self, layer: int, plane: int, block_id: int) -> U8:
        """Return the bytes of one page."""
        ...


class ChunkCopier(Protocol):
    """Copies whole chunks between the pages and host memory."""

    def chunk_digest(self, block_ids: Sequence[int]) -> str:
        """Return the MD5 of the blocks of one chunk, as the server's API defines it."""
        ...

    def gather_chunk(
        self, group: int, block_ids: Sequence[int], out: npt.NDArray[np.uint8]
    ) -> None:
        """Copy one chunk of a group into `out`, laid out [plane][layer][token][hidden], flat.

        Raises ValueError if `out` has another size.
        """
        ...

    def scatter_chunk(
        self, group: int, block_ids: Sequence[int], data: npt.NDArray[np.uint8]
    ) -> None:
        """Copy one chunk object, laid out as `gather_chunk` does, into the blocks.

        Raises ValueError if `data` has another size.
        """
        ...


class SharedMemory(Protocol):
    """Lets a server map the memory, and tells when its work on it is done."""

    @property
    def asynchronous(self) -> bool:
        """Tell whether a reply comes before its data has landed, so that events say when."""
        ...

    def exported(self, *, hnd: bool = False) -> AbstractContextManager[Sequence[KvHandle]]:
        """Return every layer's descriptor, in layer order; a server can open them inside only.

        `hnd` describes the pages of K and V as [head][slot] in place of [slot][head]: the same
        bytes, since a page's content does not depend on what its axes are called.
        """
        ...

    def record_event(self) -> bytes:
        """Return the handle of an event behind all work on this pool so far.

        It is what STORE and RETRIEVE carry, so that a server waits for our writes.
        """
        ...

    def wait_event(self, handle: bytes, *, timeout_ns: int) -> None:
        """Wait until the event that a reply carries has completed: its data has landed.

        Raises EventError if it is not an event, cannot be opened, or does not complete in time.
        """
        ...


class OwnedMemory(Protocol):
    """Gives memory back."""

    def release(self) -> None:
        """Take our names off the system and free shared memory, at once."""
        ...

    def close(self) -> None:
        """Give the memory back."""
        ...


class KvPool(PageWriter, PageReader, ChunkCopier, SharedMemory, OwnedMemory, Protocol):
    """One rank's paged KV memory."""

"""What a worker needs of its KV pool, wherever the memory is."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
import numpy.typing as npt

from benchserver.kv.blocks import Window
from benchserver.kv.evidence import Evidence
from benchserver.kv.verify import Candidate
from protocol.handles import KvHandle

Share = tuple[int, int]
"""`(i, n)`: every n-th layer from the i-th on, so that n threads can divide the work."""

WHOLE: Share = (0, 1)


def shares(count: int) -> list[Share]:
    """Return the shares of `count` threads."""
    return [(index, count) for index in range(count)]


class EventError(Exception):
    """A reply's event is none, cannot be opened, or did not complete in time."""


class KvPool(Protocol):
    """One rank's paged KV memory.  Methods block; they are called from worker threads."""

    @property
    def asynchronous(self) -> bool:
        """Tell whether a reply comes before its data has landed, so that events say when."""
        ...

    def fill(self, window: Window, digests: Sequence[int], share: Share = WHOLE) -> None:
        """Write the content of the chunks into the window's blocks, in a share of the layers.

        The window has no canaries.  On a device this is enqueued, not done, when it returns.
        """
        ...

    def poison(self, window: Window, share: Share = WHOLE) -> None:
        """Overwrite the blocks with poison, the canaries with canary bytes, in such a share.

        On a device this is enqueued, not done, when it returns.
        """
        ...

    def reuse(self, window: Window, share: Share = WHOLE) -> None:
        """XOR every byte of the window's blocks with REUSED_MASK, in this share of the layers.

        As an engine gives blocks to another request; but what the blocks held can still be told.
        The window has no canaries.  On a device this is enqueued, not done, when it returns.
        """
        ...

    def verify(
        self,
        window: Window,
        digests: Sequence[int],
        candidates: Sequence[Candidate],
        *,
        skipped: int = 0,
    ) -> Evidence:
        """Look at every byte of the window's blocks, but for the first `skipped` of its table.

        Raises ValueError if there is no page left to look at.
        """
        ...

    def verify_reused(
        self, window: Window, digests: Sequence[int], candidates: Sequence[Candidate]
    ) -> Evidence:
        """Look at every byte of blocks that `reuse` was called for, and nobody else may write.

        They may hold their content again when this returns.
        """
        ...

    def verify_skipped(
        self,
        window: Window,
        digests: Sequence[int],
        candidates: Sequence[Candidate],
        *,
        skipped: int,
    ) -> Evidence:
        """Look at every byte of the first `skipped` blocks: each must be poison still.

        Raises ValueError if that is no block at all, or more than there are.
        """
        ...

    def verify_canaries(self, window: Window) -> Evidence:
        """Look at every byte that a RETRIEVE into the window must not touch."""
        ...

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

        Raises EventError if it is none, cannot be opened, or does not complete in time.
        """
        ...

    def release(self) -> None:
        """Take our names off the system and free shared memory, at once."""
        ...

    def close(self) -> None:
        """Give the memory back."""
        ...

"""What a worker needs of its KV pool, wherever the memory is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from benchserver.kv.blocks import Window
from benchserver.kv.evidence import Evidence
from benchserver.kv.verify import Candidate

Share = tuple[int, int]
"""`(i, n)`: every n-th layer from the i-th on, so that n threads can divide the work."""

WHOLE: Share = (0, 1)


def shares(count: int) -> list[Share]:
    """Return the shares of `count` threads."""
    return [(index, count) for index in range(count)]


class KvPool(Protocol):
    """One rank's paged KV memory.  Methods block; they are called from a worker thread."""

    def fill(self, window: Window, digests: Sequence[int], share: Share = WHOLE) -> None:
        """Write the content of the chunks into the window's blocks, in a share of the layers."""
        ...

    def poison(self, window: Window, share: Share = WHOLE) -> None:
        """Overwrite the blocks with poison, the canaries with canary bytes, in such a share."""
        ...

    def verify(
        self,
        window: Window,
        digests: Sequence[int],
        candidates: Sequence[Candidate],
        *,
        skipped: int = 0,
    ) -> Evidence:
        """Look at every byte of the window's blocks, but for the first `skipped` of its table."""
        ...

    def verify_skipped(
        self,
        window: Window,
        digests: Sequence[int],
        candidates: Sequence[Candidate],
        *,
        skipped: int,
    ) -> Evidence:
        """Look at every byte of the first `skipped` blocks: each must be poison still."""
        ...

    def verify_canaries(self, window: Window) -> Evidence:
        """Look at every byte that a RETRIEVE into the window must not touch."""
        ...

    def chunk_digest(self, block_ids: Sequence[int]) -> str:
        """Return the MD5 of the blocks of one chunk, as the server's API defines it."""
        ...

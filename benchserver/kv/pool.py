"""What a worker needs of its KV pool, wherever the memory is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from benchserver.kv.blocks import Window
from benchserver.kv.evidence import Evidence
from benchserver.kv.verify import Candidate


class KvPool(Protocol):
    """One rank's paged KV memory.  Methods block; they are called from a worker thread."""

    def fill(self, window: Window, digests: Sequence[int]) -> None:
        """Write the content of the chunks into the window's blocks."""
        ...

    def poison(self, window: Window) -> None:
        """Overwrite the window's blocks with poison and its canaries with canary bytes."""
        ...

    def verify(
        self, window: Window, digests: Sequence[int], candidates: Sequence[Candidate]
    ) -> Evidence:
        """Look at every byte of the window's blocks."""
        ...

    def verify_canaries(self, window: Window) -> Evidence:
        """Look at every byte that a RETRIEVE into the window must not touch."""
        ...

    def chunk_digest(self, block_ids: Sequence[int]) -> str:
        """Return the MD5 of the blocks of one chunk, as the server's API defines it."""
        ...

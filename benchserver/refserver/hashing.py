"""Token chains: the hash that names a chunk by everything up to and including it.

h_i = H(h_(i-1) || tokens of chunk i as big-endian uint32).  H is BLAKE2b with 32 bytes, from the
standard library; the real server's default is BLAKE3 with another start value, so hashes of the
two are not comparable.  No client sees them: on the wire, keys carry tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

HASH_NAME = "blake2b"
HASH_BYTES = 32
ROOT = bytes(HASH_BYTES)
"""The hash before the first chunk."""


class Chain(Protocol):
    """How the chunks of a token sequence get their hashes."""

    def __call__(
        self, tokens: Sequence[int], *, chunk_size: int, start: int, root: bytes
    ) -> Iterator[bytes]:
        """Yield the hash of each whole chunk from token `start` on, which `root` precedes."""
        ...


def chain(tokens: Sequence[int], *, chunk_size: int, start: int, root: bytes) -> Iterator[bytes]:
    """Yield the hash of each whole chunk from token `start` on, which `root` precedes."""
    for first in range(start, len(tokens) - chunk_size + 1, chunk_size):
        packed = np.asarray(tokens[first : first + chunk_size], dtype=">u4").tobytes()
        root = hashlib.blake2b(root + packed, digest_size=HASH_BYTES).digest()
        yield root


class ChunkNamer:
    """Holds the chain that a server uses; a fault may put another one there."""

    def __init__(self) -> None:
        self.chain: Chain = chain

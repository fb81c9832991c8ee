"""Token chains: the hash that names a chunk by everything up to and including it.

h_i = BLAKE3(h_(i-1) || tokens of chunk i as big-endian uint32), from the hash of eight and four
zero bytes on: the default of the real servers (`--hash-algorithm blake3`, 0.3.14 to 0.5.6).  The
same tokens in chunks of the same size have the same hashes here and there; clients see them over
HTTP as `chunk_hash_hex`.  On the wire, keys carry tokens.

Two other algorithms of the real servers, `sha256_cbor` and `builtin`, are not served.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

HASH_NAME = "blake3"
ROOT = bytes.fromhex("7e3eff9ef7613a50340eb12677ee03b83ac759fcba9bb32705f07248d56d473b")
"""The hash before the first chunk: BLAKE3 of twelve zero bytes, which are a hash 0 and a token 0
(0.5.6)."""


class Chain(Protocol):
    """How the chunks of a token sequence get their hashes."""

    def __call__(
        self, tokens: Sequence[int], *, chunk_size: int, start: int, root: bytes
    ) -> Iterator[bytes]:
        """Yield the hash of each whole chunk from token `start` on, which `root` precedes."""
        ...


def chain(tokens: Sequence[int], *, chunk_size: int, start: int, root: bytes) -> Iterator[bytes]:
    """Yield the hash of each whole chunk from token `start` on, which `root` precedes."""
    # Loaded here: code that only describes a server hashes nothing.
    from blake3 import blake3

    for first in range(start, len(tokens) - chunk_size + 1, chunk_size):
        packed = np.asarray(tokens[first : first + chunk_size], dtype=">u4").tobytes()
        root = blake3(root + packed).digest()
        yield root


class ChunkNamer:
    """Holds the chain that a server uses; a fault may put another one there."""

    def __init__(self) -> None:
        self.chain: Chain = chain

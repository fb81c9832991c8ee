"""Which tokens a sequence has: pure, from the run's seed and the sequence number."""

from __future__ import annotations

import hashlib

import numpy as np

VOCABULARY = 128_000
"""Token ids look like those of a large model; servers take any uint32."""


def sequence_tokens(seed: int, seq: int, num_tokens: int) -> list[int]:
    """Return the token ids of one sequence; two sequences differ from their first chunk on."""
    text = f"bench-server tokens v1\0{seed}\0{seq}".encode()
    words = np.frombuffer(hashlib.shake_128(text).digest(4 * num_tokens), dtype="<u4")
    tokens: list[int] = (words % VOCABULARY).tolist()
    return tokens

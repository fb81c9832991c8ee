"""Which tokens a sequence has: pure, from the run's seed and the sequence number."""

from __future__ import annotations

import hashlib

import numpy as np

VOCABULARY = 128_000
"""Token ids look like those of a large model; servers take any uint32."""

REPEAT_EVERY = 10
"""In sequences 0, 10, 20, ... the second chunk has the tokens of the first.

Behind another prefix it is another chunk, with other content; a server that names a chunk by its
own tokens alone returns the wrong one.
"""


def sequence_tokens(seed: int, seq: int, num_tokens: int) -> list[int]:
    """Return the token ids of one sequence; two sequences differ from their first chunk on."""
    text = f"bench-server tokens v1\0{seed}\0{seq}".encode()
    words = np.frombuffer(hashlib.shake_128(text).digest(4 * num_tokens), dtype="<u4")
    tokens: list[int] = (words % VOCABULARY).tolist()
    return tokens


def chunked_tokens(seed: int, seq: int, num_tokens: int, chunk_tokens: int) -> list[int]:
    """Return the token ids of one sequence for a server with this chunk size.

    As `sequence_tokens`, but that every REPEAT_EVERY-th sequence has two chunks of equal tokens.
    A shorter request stays a prefix of a longer one.
    """
    tokens = sequence_tokens(seed, seq, num_tokens)
    if seq % REPEAT_EVERY == 0:
        second = tokens[chunk_tokens : 2 * chunk_tokens]
        tokens[chunk_tokens : chunk_tokens + len(second)] = tokens[: len(second)]
    return tokens

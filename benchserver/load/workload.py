"""Which tokens a sequence has: pure, from the run's seed and the sequence number."""

from __future__ import annotations

import hashlib

PROBE_EVERY = 10
"""Sequences 0, 10, 20, ... hold equal chunks."""

VOCABULARY = 128_000
"""Token ids look like those of a large model; servers take any uint32."""


def sequence_tokens(seed: int, seq: int, num_tokens: int) -> list[int]:
    """Return the token ids of one sequence; two sequences differ from their first chunk on."""
    return _drawn(f"bench-server tokens v1\0{seed}\0{seq}", num_tokens)


def equal_chunk_tokens(seed: int, seq: int, num_tokens: int, chunk_tokens: int) -> list[int]:
    """Return tokens whose second chunk equals the first, and which no sequence has."""
    tokens = _drawn(f"bench-server equal chunks v1\0{seed}\0{seq}", num_tokens)
    return _repeated(tokens, chunk_tokens)


def chunked_tokens(seed: int, seq: int, num_tokens: int, chunk_tokens: int) -> list[int]:
    """Return the token ids of one sequence for a server with this chunk size.

    As `sequence_tokens`, except that in sequences 0, 10, 20, ... the second chunk has the tokens of
    the first.  Behind another prefix it is another chunk, with other content; a server that names
    a chunk by its own tokens alone returns the wrong one.  A shorter request stays a prefix of a
    longer one.
    """
    tokens = sequence_tokens(seed, seq, num_tokens)
    return _repeated(tokens, chunk_tokens) if seq % PROBE_EVERY == 0 else tokens


def _drawn(name: str, num_tokens: int) -> list[int]:
    # Loaded here: what is planned is known before anything is drawn.
    import numpy as np

    words = np.frombuffer(hashlib.shake_128(name.encode()).digest(4 * num_tokens), dtype="<u4")
    tokens: list[int] = (words % VOCABULARY).tolist()
    return tokens


def _repeated(tokens: list[int], chunk_tokens: int) -> list[int]:
    second = len(tokens[chunk_tokens : 2 * chunk_tokens])
    return tokens[:chunk_tokens] + tokens[:second] + tokens[chunk_tokens + second :]

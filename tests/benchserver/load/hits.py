"""What ideal caches would have of some requests, for tests."""

from __future__ import annotations

from collections.abc import Iterable

from benchserver.load.ideal import Ideal
from benchserver.load.request import Request, chunk_ids


def ideal_hits(requests: Iterable[Request], chunk_tokens: int, lru_chunks: int = 0) -> Ideal:
    """Return what both caches would have of requests, made in their order."""
    ideal = Ideal(chunk_tokens, lru_chunks)
    for request in requests:
        ideal.ask(chunk_ids(request, chunk_tokens), request.num_tokens)
    return ideal

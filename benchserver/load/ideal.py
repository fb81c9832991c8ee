"""How much of a load a perfect cache would have: counted from the plan alone, request by request.

A request looks its chunks up, which touches those that are hit, and stores the others.  Only the
chunks before the first that is missing are hit.  Each request finds all that came before it: a
server that is asked for several at once may find less, and so may one that evicts before it is
full.

Two caches: one that never forgets, and one that forgets what was least recently used.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

MAX_REMEMBERED = 1 << 20
"""Chunks that the infinite cache surely remembers: so many different ones, the last asked for.

It keeps twice as many at most, some 150 MiB.
"""

MAX_LRU_CHUNKS = 1 << 20
"""The largest LRU cache that is counted, some 200 MiB."""

_ENTRY_BYTES = 100
"""What a chunk takes in either cache."""

_DIGEST_BYTES = 8
"""Kept of each name.  That two of a million are equal in them has a chance of 1 in 10 million."""


class InfiniteCache:
    """A cache that never forgets, in bounded memory.

    Two generations of names: they go into the young one, also those found in the old one; when the
    young one is full, it becomes the old one.  So a name is forgotten only if it was not asked for
    while `remembered` others were: from then on `forgets`, and hits are those of a cache that holds
    at least so many chunks.
    """

    def __init__(self, remembered: int) -> None:
        self.remembered = remembered
        self._young, self._old = set[bytes](), set[bytes]()
        self.forgets = False

    def __len__(self) -> int:
        """Return how many names are kept."""
        return len(self._young) + len(self._old)

    def ask(self, chunks: Sequence[bytes]) -> int:
        """Return how many chunks of a request are hit, and store the others."""
        hits, missed = 0, False
        for name in chunks:
            digest = name[:_DIGEST_BYTES]
            missed = missed or (digest not in self._young and digest not in self._old)
            hits += not missed
            self._young.add(digest)
            if len(self._young) >= self.remembered:
                self.forgets = self.forgets or bool(self._old)
                self._young, self._old = set(), self._young
        return hits


class LruCache:
    """A cache of `capacity` chunks that forgets the least recently used one when it is full."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        """Return how many chunks are kept."""
        return len(self._kept)

    def ask(self, chunks: Sequence[bytes]) -> int:
        """Return how many chunks of a request are hit, and store the others."""
        kept = self._kept
        hits = 0
        for name in chunks:
            if name not in kept:
                break
            kept.move_to_end(name)
            hits += 1
        for name in itertools.islice(chunks, hits, None):
            kept[name] = None
            kept.move_to_end(name)
            if len(kept) > self._capacity:
                kept.popitem(last=False)
        return hits


@dataclass(slots=True)
class Tally:
    """What was asked for and what was hit, by chunks and by tokens.

    Tokens behind the last whole chunk of a request are asked for, and never hit.
    """

    chunk_tokens: int
    asked_chunks: int = 0
    asked_tokens: int = 0
    hit_chunks: int = 0

    def add(self, request_tokens: int, hit_chunks: int) -> None:
        """Count a request."""
        self.asked_chunks += request_tokens // self.chunk_tokens
        self.asked_tokens += request_tokens
        self.hit_chunks += hit_chunks

    @property
    def hit_tokens(self) -> int:
        """Return the tokens of all chunks that were hit."""
        return self.hit_chunks * self.chunk_tokens

    @property
    def ratio(self) -> float:
        """Return the share of all tokens that was hit; 0 of none."""
        return self.hit_tokens / self.asked_tokens if self.asked_tokens else 0.0


class Ideal:
    """What both caches would have of the requests of a run, counted as they are made.

    `lru_chunks`: how many chunks the server's L1 holds, 0 if nobody knows.  `lru` is None where
    that is not counted, and `why_no_lru` says why.
    """

    def __init__(
        self, chunk_tokens: int, lru_chunks: int, *, remembered: int = MAX_REMEMBERED
    ) -> None:
        self.infinite = Tally(chunk_tokens)
        self.lru = Tally(chunk_tokens) if 1 <= lru_chunks <= MAX_LRU_CHUNKS else None
        self.lru_chunks = lru_chunks
        self._endless = InfiniteCache(remembered)
        self._bounded = LruCache(lru_chunks)

    @property
    def nbytes(self) -> int:
        """Return about how much memory both caches take."""
        return (len(self._endless) + len(self._bounded)) * _ENTRY_BYTES

    @property
    def why_no_lru(self) -> str:
        """Return why an LRU cache of the server's size is not counted, or "" if it is."""
        if self.lru is not None:
            return ""
        if not self.lru_chunks:
            return "the server does not say how many chunks its L1 holds"
        return f"L1 holds {self.lru_chunks} chunks, and no more than {MAX_LRU_CHUNKS} are counted"

    @property
    def bound(self) -> str:
        """Return how the hits of the infinite cache are to be read, or "" if they are exact."""
        if not self._endless.forgets:
            return ""
        others = self._endless.remembered
        return f"at least: a chunk is remembered until {others} others were asked for"

    def forget(self) -> None:
        """Let both caches be empty, as those of a server that was restarted are."""
        forgets = self._endless.forgets
        self._endless = InfiniteCache(self._endless.remembered)
        self._endless.forgets = forgets
        self._bounded = LruCache(self.lru_chunks)

    def ask(self, chunks: Sequence[bytes], num_tokens: int, *, counted: bool = True) -> int:
        """Make a request, and return how many of its chunks an infinite cache would have.

        `chunks` are the names of those that its `num_tokens` tokens fill.  One that is not
        `counted` only fills the caches, as a warm-up does.
        """
        hits = self._endless.ask(chunks)
        lru_hits = self._bounded.ask(chunks) if self.lru is not None else 0
        if counted:
            self.infinite.add(num_tokens, hits)
            if self.lru is not None:
                self.lru.add(num_tokens, lru_hits)
        return hits

"""What this run knows to have stored, in bounded memory: the hits that a LOOKUP must find.

A chunk is *acknowledged* once every rank's STORE of it was answered, and *possible* from the moment
its STORE began: one that was never answered may have happened.  What a LOOKUP has missed is
possible again, so that one loss is counted once.
"""

from __future__ import annotations

from collections.abc import Sequence

MOST_CHUNKS = 1 << 19
"""Some 100 MB.  Beyond that the oldest are forgotten: a hit on them is content that is verified as
any other, but was not expected."""

_POSSIBLE = -1
_CHUNK_BYTES = 160
"""What a chunk takes here: its name, a time, a place in a map."""


class Stored:
    """The chunks of one run, by their names of `load.request.chunk_ids`."""

    def __init__(self, most_chunks: int = MOST_CHUNKS) -> None:
        self._most = most_chunks
        self._at: dict[bytes, int] = {}
        self.forgotten = 0

    @property
    def nbytes(self) -> int:
        """Return about how much memory this takes."""
        return len(self._at) * _CHUNK_BYTES

    def acknowledged(self, ids: Sequence[bytes]) -> int:
        """Return how many first chunks are known to be stored, so that all of them must be hit."""
        for count, name in enumerate(ids):
            if self._at.get(name, _POSSIBLE) == _POSSIBLE:
                return count
        return len(ids)

    def possible(self, ids: Sequence[bytes]) -> int:
        """Return how many first chunks may have been stored by this run."""
        for count, name in enumerate(ids):
            if name not in self._at:
                return count
        return len(ids)

    def since_ns(self, name: bytes) -> int:
        """Return when the STORE of an acknowledged chunk was answered."""
        return self._at[name]

    def begin(self, ids: Sequence[bytes]) -> None:
        """Note that a STORE of these chunks is about to be sent."""
        for name in ids:
            self._at.setdefault(name, _POSSIBLE)

    def acknowledge(self, ids: Sequence[bytes], now_ns: int) -> None:
        """Note that every rank's STORE of these chunks was answered."""
        for name in ids:
            self._at.pop(name, None)
            self._at[name] = now_ns
        while len(self._at) > self._most:
            del self._at[next(iter(self._at))]
            self.forgotten += 1

    def missed(self, name: bytes) -> None:
        """Note that a LOOKUP did not find this chunk."""
        if name in self._at:
            self._at[name] = _POSSIBLE

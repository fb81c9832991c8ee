"""Which objects a bounded store holds, oldest use first, and which must go: pure bookkeeping."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Lru(Generic[K, V]):
    """Entries with sizes; `used_bytes` is the sum of them."""

    def __init__(self) -> None:
        self.used_bytes = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        """Tell whether there is such an entry; this does not count as use."""
        return key in self._entries

    def oldest(self) -> K | None:
        """Return the key whose last use is the longest ago; None if there is no entry."""
        return next(iter(self._entries), None)

    def use(self, key: K) -> V | None:
        """Return an entry's value and make it the newest; None if there is none."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: K, value: V, nbytes: int) -> V | None:
        """Add an entry as the newest; return the value that it replaces, if any."""
        replaced = self.drop(key)
        self._entries[key] = (value, nbytes)
        self.used_bytes += nbytes
        return replaced

    def drop(self, key: K) -> V | None:
        """Remove an entry and return its value; None if there is none."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self.used_bytes -= entry[1]
        return entry[0]

    def evict_to(self, nbytes: int) -> list[tuple[K, V]]:
        """Remove the oldest until no more than `nbytes` are used; return what went."""
        gone = []
        while self._entries and self.used_bytes > nbytes:
            key, (value, size) = self._entries.popitem(last=False)
            self.used_bytes -= size
            gone.append((key, value))
        return gone

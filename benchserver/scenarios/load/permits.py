"""How many requests of a client may be under way, and when the server gave each place back."""

from __future__ import annotations

import asyncio
from collections import deque


class Permits:
    """The places of one client; who waits gets them in the order of coming."""

    def __init__(self, count: int, now_ns: int) -> None:
        self.count = count
        self._free = deque([now_ns] * count)
        self._waiting: deque[asyncio.Future[int]] = deque()

    @property
    def taken(self) -> int:
        """Return how many are in use."""
        return self.count - len(self._free)

    async def take(self) -> int:
        """Wait for a place, and return when it was given back."""
        if self._free:
            return self._free.popleft()
        place: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.give(place.result())  # it came at the same moment
            raise

    def give(self, now_ns: int) -> None:
        """Give a place back."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(now_ns)
                return
        self._free.append(now_ns)

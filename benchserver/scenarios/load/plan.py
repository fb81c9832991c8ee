"""Which request comes next, when it is due, and when there are no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchserver.load.request import Request

_REMEMBERED = 1 << 16
"""How many requests' ends are kept for those that follow on one; an older one ended long ago."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request, and when it is due, from the start; None: as soon as it can be sent."""

    request: Request
    due_ns: int | None


class Plan:
    """Hands out the requests of a workload in their order; all times are from the start."""

    def __init__(
        self,
        requests: Iterator[Request],
        instants: Callable[[], Iterator[int]] | None,
        *,
        most: int | None,
        end_ns: int | None,
    ) -> None:
        """Hand out `most` requests at most, and none that is due at `end_ns` or later.

        `instants` are those of an open loop, from the first; None: the loop is closed.
        """
        self._requests = requests
        self._instants = None if instants is None else instants()
        self._due = None if instants is None else _Due(instants(), most, end_ns)
        self._most = most
        self._end_ns = end_ns
        self._taken = 0

    @property
    def is_open(self) -> bool:
        """Tell whether instants are planned."""
        return self._instants is not None

    def over(self, now_ns: int) -> bool:
        """Tell whether no request may be sent any more."""
        return self._end_ns is not None and now_ns >= self._end_ns

    def take(self, now_ns: int) -> Arrival | None:
        """Return the next request, or None if there is none."""
        if self.over(now_ns) or self._taken == self._most:
            return None
        due_ns: int | None = None
        if self._instants is not None:
            due_ns = next(self._instants, None)
            if due_ns is None or self.over(due_ns):
                return None
        request = next(self._requests, None)
        if request is None:
            return None
        self._taken += 1
        return Arrival(request, due_ns)

    def due(self, now_ns: int) -> int:
        """Return how many requests of an open loop were due until now; 0 for a closed one."""
        return 0 if self._due is None else self._due.until(now_ns)


class _Due:
    """Counts instants as time goes on, and keeps none of them."""

    def __init__(self, instants: Iterator[int], most: int | None, end_ns: int | None) -> None:
        self._instants = instants
        self._most = most
        self._end_ns = end_ns
        self._count = 0
        self._next = next(instants, None)

    def until(self, now_ns: int) -> int:
        while (
            self._next is not None
            and self._next <= now_ns
            and self._count != self._most
            and (self._end_ns is None or self._next < self._end_ns)
        ):
            self._count += 1
            self._next = next(self._instants, None)
        return self._count


class Turns:
    """When requests ended, for those that follow on one of them."""

    def __init__(self) -> None:
        self._under_way: dict[int, asyncio.Event] = {}
        self._ended: dict[int, int] = {}

    def begin(self, number: int) -> None:
        """Note that a request was taken."""
        self._under_way[number] = asyncio.Event()

    def end(self, number: int, now_ns: int) -> None:
        """Note that it ended, or will never be sent."""
        self._ended[number] = now_ns
        self._under_way.pop(number).set()
        if len(self._ended) > _REMEMBERED:
            del self._ended[next(iter(self._ended))]

    async def ready_ns(self, request: Request) -> int:
        """Wait until the request before this one ended; return when this one may be sent."""
        if request.after is None:
            return 0
        before = self._under_way.get(request.after)
        if before is not None:
            await before.wait()
        return self._ended.get(request.after, 0) + request.think_ns

"""One direction of a store with limited throughput: which transfer is on the line, until when.

The line carries one transfer at a time at full speed, so that the limit is the whole store's.
Waiting transfers go by rank, then by arrival; what is on the line is not interrupted.  Pure: the
state is a function of the calls and of their `now_ns`, which never goes back.

A real caller wakes up a little after its transfer ended, and its next one starts late by as much.
Summed up over many small transfers that is a slower line than the one asked for.  So lateness is
credited: `woke_late` is told of it, and the next transfer that finds the line idle starts earlier
by that, though never before the line was free.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count

from benchserver.clock import NS_PER_MS, NS_PER_S

MAX_CREDIT_NS = 20 * NS_PER_MS
"""Later than this, the machine is overloaded, and what it measures should say so."""


class Rank(IntEnum):
    """Who goes first.  Existence probes go before all of them and never wait for a line."""

    PREFETCH = 0
    GET = 1
    PUT = 2


_WAITING = -1
"""`finish_ns` of a transfer that is not on the line yet."""


@dataclass(slots=True, order=True)
class Transfer:
    """One object's way over the line; the line alone changes it."""

    rank: Rank
    serial: int
    duration_ns: int = field(compare=False)
    arrived_ns: int = field(compare=False)
    finish_ns: int = field(default=_WAITING, compare=False)
    withdrawn: bool = field(default=False, compare=False)


class Line:
    """The transfers of one direction."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_ns = 0
        self._credit_ns = 0
        self._waiting: list[Transfer] = []
        self._serial = count()

    def submit(self, rank: Rank, nbytes: int, now_ns: int) -> Transfer:
        """Queue a transfer."""
        self.advance(now_ns)
        transfer = Transfer(
            rank=rank,
            serial=next(self._serial),
            duration_ns=-(-nbytes * NS_PER_S // self._bytes_per_s),
            arrived_ns=now_ns - self._credit_ns,
        )
        self._credit_ns = 0
        heapq.heappush(self._waiting, transfer)
        self.advance(now_ns)
        return transfer

    def withdraw(self, transfer: Transfer) -> None:
        """Take back a transfer that waits; one on the line, or past it, stays what it is."""
        transfer.withdrawn = True

    def advance(self, now_ns: int) -> None:
        """Put on the line what has its turn by now."""
        while self._waiting and self._free_ns <= now_ns:
            transfer = heapq.heappop(self._waiting)
            if transfer.withdrawn:
                continue
            start_ns = max(self._free_ns, transfer.arrived_ns)
            self._free_ns = transfer.finish_ns = start_ns + transfer.duration_ns

    def finish_ns(self, transfer: Transfer, now_ns: int) -> int:
        """Return when a transfer ends, if nobody of a better rank comes before its turn."""
        self.advance(now_ns)
        if transfer.finish_ns != _WAITING:
            return transfer.finish_ns
        ahead = (t for t in self._waiting if t <= transfer and not t.withdrawn)
        return self._free_ns + sum(t.duration_ns for t in ahead)

    def depth(self, now_ns: int) -> int:
        """Return how many transfers are on the line or wait for it."""
        self.advance(now_ns)
        return (self._free_ns > now_ns) + sum(not t.withdrawn for t in self._waiting)

    def woke_late(self, late_ns: int) -> None:
        """Note by how much somebody heard too late that a transfer has ended."""
        self._credit_ns = min(late_ns, MAX_CREDIT_NS)

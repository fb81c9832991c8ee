"""Counts of requests, by operation and by what became of them, and how long handlers took.

Belongs to the event loop; pure except for the clock that it is given.  Bounded: operations and
outcomes are closed sets, and latencies are counted in fixed buckets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from types import MappingProxyType

from benchserver.clock import NS_PER_MS, Clock
from protocol.ops import Op

UNREADABLE = "unreadable"
"""Stands for the operation of frames that are not a request."""

BOUNDS_NS = tuple(
    tenths * NS_PER_MS // 10
    for tenths in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000)
)
"""Upper bounds of the latency buckets: 0.1 ms to 5 s."""


class Fate(Enum):
    """What became of a request."""

    ANSWERED = "answered"
    REFUSED = "refused"
    """Not readable, not valid or not served: no reply, as from the real server."""
    UNANSWERED = "unanswered"
    """Done, but the reply did not leave: lost, or kept back or delayed by a fault."""
    DROPPED = "dropped"
    """Never looked at: too many were waiting."""
    UNEXPECTED = "unexpected"
    """Ended by an error that nobody thought of, a bug of this server; no reply."""


class Latencies:
    """How often handlers took how long; `counts` has one bucket more than there are bounds."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_NS) + 1)
        self.sum_ns = 0

    def add(self, duration_ns: int) -> None:
        """Count one duration."""
        self.counts[bisect_left(BOUNDS_NS, duration_ns)] += 1
        self.sum_ns += duration_ns


class Meter:
    """What the ZMQ side has done since the start; no number ever falls."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._fates: Counter[tuple[str, Fate]] = Counter()
        self._latencies: dict[Op, Latencies] = {}

    @property
    def fates(self) -> Mapping[tuple[str, Fate], int]:
        """Return the number of requests by operation and fate."""
        return MappingProxyType(self._fates)

    @property
    def latencies(self) -> Mapping[Op, Latencies]:
        """Return how long the handlers took, refusals included, by operation."""
        return MappingProxyType(self._latencies)

    def count(self, op: Op | None, fate: Fate) -> None:
        """Count one request; None: what it asks for could not be read."""
        self._fates[UNREADABLE if op is None else op.value, fate] += 1

    @contextmanager
    def timed(self, op: Op) -> Iterator[None]:
        """Count how long the block takes, however it ends."""
        start_ns = self._clock.now_ns()
        try:
            yield
        finally:
            self._latencies.setdefault(op, Latencies()).add(self._clock.now_ns() - start_ns)

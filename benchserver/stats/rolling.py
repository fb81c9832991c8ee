"""Latencies of the last minute, in bounded memory: a ring of small histograms of five seconds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil

from benchserver.stats.logbuckets import bucket_of, upper_end

SLOT_NS = 5_000_000_000
SLOTS = 12
"""A minute, and the slot that is being filled."""

ROLLING_BITS = 5
"""A percentile is too high by 3 % at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingSummary:
    """What ended in the last minute, or since the begin if that is less.

    Without any there are no percentiles.
    """

    count: int
    rate_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    p999_ms: float | None


class Rolling:
    """The latencies of the last minute of one kind of operation."""

    def __init__(self, began_ns: int) -> None:
        """Counting begins then."""
        self._began_ns = began_ns
        self._turn = 0
        """The number of the slot that is being filled, from the begin."""
        self._slots: list[dict[int, int]] = [{} for _ in range(SLOTS + 1)]

    def slot(self, now_ns: int) -> tuple[dict[int, int], int]:
        """Return the counts by bucket that what ends now belongs to, and until when it does."""
        return self._slot(now_ns), self._began_ns + (self._turn + 1) * SLOT_NS

    def add(self, now_ns: int, latency_ns: int) -> None:
        """Count one that ended now."""
        slot, bucket = self._slot(now_ns), bucket_of(latency_ns, ROLLING_BITS)
        slot[bucket] = slot.get(bucket, 0) + 1

    def summary(self, now_ns: int) -> RollingSummary:
        """Return the figures of the last minute."""
        self._slot(now_ns)
        counts = Counter[int]()
        for slot in self._slots:
            counts.update(slot)
        count = counts.total()
        first_ns = self._began_ns + max(0, self._turn - SLOTS) * SLOT_NS
        span_ns = now_ns - first_ns
        return RollingSummary(
            count=count,
            rate_per_s=count * 1e9 / span_ns if span_ns > 0 else 0.0,
            p50_ms=_percentile_ms(counts, count, 50),
            p99_ms=_percentile_ms(counts, count, 99),
            p999_ms=_percentile_ms(counts, count, 99.9),
        )

    def _slot(self, now_ns: int) -> dict[int, int]:
        """Empty the slots whose time has come round, and return that of now."""
        turn = max(self._turn, (now_ns - self._began_ns) // SLOT_NS)
        if turn != self._turn:
            for gone in range(min(turn - self._turn, len(self._slots))):
                self._slots[(turn - gone) % len(self._slots)].clear()
            self._turn = turn
        return self._slots[turn % len(self._slots)]


def _percentile_ms(counts: Counter[int], total: int, percent: float) -> float | None:
    """Return the latency that so many per cent did not exceed."""
    left = ceil(percent * total / 100)
    for bucket in sorted(counts):
        left -= counts[bucket]
        if left <= 0:
            return upper_end(bucket, ROLLING_BITS) / 1e6
    return None

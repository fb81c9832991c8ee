"""Latency histograms (HdrHistogram) and transfer rates; a week's run takes no more memory."""

from __future__ import annotations

from dataclasses import dataclass

from hdrh.histogram import HdrHistogram

_LOWEST_US = 1
_HIGHEST_US = 3_600_000_000
"""One hour; a call's deadline is far below it."""

_DIGITS = 3
_NS_PER_US = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySummary:
    """Count, and milliseconds (from microsecond buckets of three digits)."""

    count: int
    mean_ms: float
    min_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float


class LatencySeries:
    """The latencies of one kind of operation in one pass."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(_LOWEST_US, _HIGHEST_US, _DIGITS)
        self._count = 0
        self._sum_ns = 0
        self._min_ns = 0
        self._max_ns = 0

    def add(self, latency_ns: int) -> None:
        """Count one latency."""
        clamped = min(max(latency_ns // _NS_PER_US, _LOWEST_US), _HIGHEST_US)
        self._histogram.record_value(clamped)
        self._min_ns = min(self._min_ns, latency_ns) if self._count else latency_ns
        self._max_ns = max(self._max_ns, latency_ns)
        self._sum_ns += latency_ns
        self._count += 1

    def summary(self) -> LatencySummary | None:
        """Return the numbers, or None if nothing was counted."""
        if not self._count:
            return None
        return LatencySummary(
            count=self._count,
            mean_ms=self._sum_ns / self._count / 1e6,
            min_ms=self._min_ns / 1e6,
            p50_ms=self._percentile_ms(50),
            p99_ms=self._percentile_ms(99),
            max_ms=self._max_ns / 1e6,
        )

    def _percentile_ms(self, percentile: float) -> float:
        """Return a percentile; a bucket's upper end may lie beyond what was counted."""
        value_us: int = self._histogram.get_value_at_percentile(percentile)
        return min(max(value_us * _NS_PER_US, self._min_ns), self._max_ns) / 1e6


class RateSeries:
    """Bytes moved over the time that moving them took."""

    def __init__(self) -> None:
        self.nbytes = 0
        self.busy_ns = 0

    def add(self, nbytes: int, latency_ns: int) -> None:
        """Count one transfer."""
        self.nbytes += nbytes
        self.busy_ns += latency_ns

    def gigabytes_per_s(self) -> float | None:
        """Return GB/s (10^9 bytes), or None if nothing moved."""
        return self.nbytes / self.busy_ns if self.busy_ns else None

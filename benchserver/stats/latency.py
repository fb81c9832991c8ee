"""Latency histograms (HdrHistogram) and transfer rates; a week's run takes no more memory.

Series of several workers, processes or hosts merge into one, as if one had counted all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from hdrh.histogram import HdrHistogram

_LOWEST_US = 1
_HIGHEST_US = 3_600_000_000
"""One hour; a call's deadline is far below it."""

_DIGITS = 3
_PERCENTILES = (50, 90, 99, 99.9)
_NS_PER_US = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySummary:
    """Count, and milliseconds (from microsecond buckets of three digits, or as said).

    `clamped` of them are longer than the histogram holds, `censored` had not ended when
    the wait for them was given up: both are at least what is counted, and so are the percentiles.
    """

    count: int
    mean_ms: float
    min_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    clamped: int = 0
    censored: int = 0


class LatencySeries:
    """The latencies of one kind of operation."""

    def __init__(
        self, *, digits: int = _DIGITS, heard: Callable[[int], None] | None = None
    ) -> None:
        """Two `digits` take a seventh of the memory of three; only equal ones merge.

        `heard` is told of each latency when it is counted.
        """
        self._heard = heard
        self._histogram = HdrHistogram(_LOWEST_US, _HIGHEST_US, digits)
        self._count = 0
        self._sum_ns = 0
        self._min_ns = 0
        self._max_ns = 0
        self._clamped = 0
        self._censored = 0

    def add(self, latency_ns: int) -> None:
        """Count one latency."""
        latency_us = latency_ns // _NS_PER_US
        self._clamped += latency_us > _HIGHEST_US
        self._histogram.record_value(min(max(latency_us, _LOWEST_US), _HIGHEST_US))
        self._min_ns = min(self._min_ns, latency_ns) if self._count else latency_ns
        self._max_ns = max(self._max_ns, latency_ns)
        self._sum_ns += latency_ns
        self._count += 1
        if self._heard is not None:
            self._heard(latency_ns)

    def add_censored(self, waited_ns: int) -> None:
        """Count an operation that had not ended after so long, when the wait was given up."""
        self._censored += 1
        self.add(waited_ns)

    @property
    def count(self) -> int:
        """Return how many were counted."""
        return self._count

    @property
    def sum_ns(self) -> int:
        """Return how long all of them took together."""
        return self._sum_ns

    def merge(self, other: LatencySeries) -> None:
        """Count all that another series has counted."""
        if not other._count:
            return
        self._histogram.add(other._histogram)
        self._min_ns = min(self._min_ns, other._min_ns) if self._count else other._min_ns
        self._max_ns = max(self._max_ns, other._max_ns)
        self._sum_ns += other._sum_ns
        self._count += other._count
        self._clamped += other._clamped
        self._censored += other._censored

    def summary(self) -> LatencySummary | None:
        """Return the numbers, or None if nothing was counted."""
        if not self._count:
            return None
        percentiles = self._percentiles_ms()
        return LatencySummary(
            count=self._count,
            mean_ms=self._sum_ns / self._count / 1e6,
            min_ms=self._min_ns / 1e6,
            p50_ms=percentiles[50],
            p90_ms=percentiles[90],
            p99_ms=percentiles[99],
            p999_ms=percentiles[99.9],
            max_ms=self._max_ns / 1e6,
            clamped=self._clamped,
            censored=self._censored,
        )

    def encoded(self) -> bytes:
        """Return the histogram in the form V2 of HdrHistogram, compressed, base64; in us."""
        found: bytes = self._histogram.encode()
        return found

    def _percentiles_ms(self) -> dict[float, float]:
        """Return the percentiles: the least latency that so many did not exceed.

        The histogram rounds how many that are; a percentile of few must not be the lower of two.
        A bucket's upper end may lie beyond what was counted.
        """
        ranks = {each: ceil(each * self._count / 100) for each in _PERCENTILES}
        asked = {each: 100 * rank / self._count for each, rank in ranks.items()}
        found: dict[float, int] = self._histogram.get_percentile_to_value_dict(asked.values())
        return {
            each: min(max(found[at] * _NS_PER_US, self._min_ns), self._max_ns) / 1e6
            for each, at in asked.items()
        }


class RateSeries:
    """Bytes moved over the time that moving them took."""

    def __init__(self, heard: Callable[[int], None] | None = None) -> None:
        """`heard` is told of the bytes of each transfer when it is counted."""
        self._heard = heard
        self.nbytes = 0
        self.busy_ns = 0

    def add(self, nbytes: int, latency_ns: int) -> None:
        """Count one transfer."""
        self.nbytes += nbytes
        self.busy_ns += latency_ns
        if self._heard is not None:
            self._heard(nbytes)

    def merge(self, other: RateSeries) -> None:
        """Count all that another has counted."""
        self.nbytes += other.nbytes
        self.busy_ns += other.busy_ns

    def gigabytes_per_s(self) -> float | None:
        """Return GB/s (10^9 bytes), or None if nothing moved."""
        return self.nbytes / self.busy_ns if self.busy_ns else None

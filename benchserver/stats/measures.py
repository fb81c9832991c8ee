"""All that a run measures, by the series that its scenario declares, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchserver.stats.latency import LatencySeries, RateSeries


@dataclass(frozen=True, slots=True)
class Series:
    """What one series of figures is about: an operation, and which kind of it."""

    operation: str
    kind: str = ""

    @property
    def name(self) -> str:
        """Return what reports call it."""
        return f"{self.operation} {self.kind}".rstrip()


class Measures:
    """Latencies and transfer rates by series, and how many calls were attempted.

    Series are in the order of reports.  What is not declared cannot be counted.
    """

    def __init__(self, series: Iterable[Series] = (), rates: Iterable[Series] = ()) -> None:
        self.latencies = {one: LatencySeries() for one in series}
        self.rates = {one: RateSeries() for one in rates}
        self.errors = dict.fromkeys(self.latencies, 0)
        """How many operations of a series did not end well, whether or not their time counts."""
        self.attempted = 0

    def merge(self, other: Measures) -> None:
        """Count all that another has measured, in series of its own where there is none yet."""
        for one, latencies in other.latencies.items():
            self.latencies.setdefault(one, LatencySeries()).merge(latencies)
        for one, rate in other.rates.items():
            self.rates.setdefault(one, RateSeries()).merge(rate)
        for one, count in other.errors.items():
            self.errors[one] = self.errors.get(one, 0) + count
        self.attempted += other.attempted

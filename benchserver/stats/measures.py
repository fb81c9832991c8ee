"""All that a run measures, by the series that its scenario declares, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchserver.stats.latency import LatencySeries, RateSeries
from benchserver.stats.logbuckets import bucket_of
from benchserver.stats.overtime import Columns, row_of
from benchserver.stats.rolling import ROLLING_BITS, Rolling, RollingSummary


@dataclass(frozen=True, slots=True)
class Series:
    """What one series of figures is about: an operation, and which kind of it."""

    operation: str
    kind: str = ""

    @property
    def name(self) -> str:
        """Return what reports call it."""
        return f"{self.operation} {self.kind}".rstrip()


class _Listener:
    """Counts what it hears of by column of time, and for the last minute, in a microsecond each."""

    __slots__ = ("_clock", "_column", "_heat", "_rolling", "_slot", "_until_ns")

    def __init__(self, heat: Columns, rolling: Rolling, clock: Callable[[], int]) -> None:
        self._heat, self._rolling, self._clock = heat, rolling, clock
        self._column: dict[int, int] = {}
        self._slot: dict[int, int] = {}
        self._until_ns = 0

    def __call__(self, latency_ns: int) -> None:
        """Hear of a latency that ended now."""
        now_ns = self._clock()
        if now_ns >= self._until_ns:
            self._column, column_ns = self._heat.column(now_ns)
            self._slot, slot_ns = self._rolling.slot(now_ns)
            self._until_ns = min(column_ns, slot_ns)
        column, slot = self._column, self._slot
        row, bucket = row_of(latency_ns), bucket_of(latency_ns, ROLLING_BITS)
        column[row] = column.get(row, 0) + 1
        slot[bucket] = slot.get(bucket, 0) + 1


class Measures:
    """Latencies and transfer rates by series, and how many calls were attempted.

    Series are in the order of reports.  What is not declared cannot be counted.  Each is kept for
    the whole run; by columns of time, from when this was made; and for the last minute.
    """

    def __init__(
        self,
        series: Iterable[Series] = (),
        rates: Iterable[Series] = (),
        now_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        """`now_ns` is the run's clock; without one all happens at once."""
        self._now_ns = now_ns
        self._began_ns = now_ns()
        self.heat: dict[Series, Columns] = {}
        """Latencies by column of time: how many lie in which row."""
        self.moved: dict[Series, Columns] = {}
        """Bytes moved by column of time, all in row 0."""
        self.units = Columns(self._began_ns)
        """Units of work that were concluded by column of time; a row is a verdict's value."""
        self._rolling: dict[Series, Rolling] = {}
        self.latencies = {one: self._latencies(one) for one in series}
        self.rates = {one: self._rate(one) for one in rates}
        self.errors = dict.fromkeys(self.latencies, 0)
        """How many operations of a series did not end well, whether or not their time counts."""
        self.attempted = 0

    def rolling(self, one: Series) -> RollingSummary:
        """Return the figures of a series in the last minute."""
        return self._rolling[one].summary(self._now_ns())

    def concluded(self, verdict: int) -> None:
        """Count a unit of work that was concluded now."""
        self.units.add(self._now_ns(), verdict)

    def merge(self, other: Measures) -> None:
        """Count all that another has measured, in series of its own where there is none yet.

        The last minute of each stays its own.  Not while this one is still being added to.
        """
        for one, latencies in other.latencies.items():
            self.latencies.setdefault(one, LatencySeries()).merge(latencies)
        for one, rate in other.rates.items():
            self.rates.setdefault(one, RateSeries()).merge(rate)
        for mine, theirs in ((self.heat, other.heat), (self.moved, other.moved)):
            for one, columns in theirs.items():
                mine.setdefault(one, Columns(self._began_ns)).merge(columns)
        self.units.merge(other.units)
        for one, count in other.errors.items():
            self.errors[one] = self.errors.get(one, 0) + count
        self.attempted += other.attempted

    def _latencies(self, one: Series) -> LatencySeries:
        heat = self.heat[one] = Columns(self._began_ns)
        rolling = self._rolling[one] = Rolling(self._began_ns)
        return LatencySeries(heard=_Listener(heat, rolling, self._now_ns))

    def _rate(self, one: Series) -> RateSeries:
        moved = self.moved[one] = Columns(self._began_ns)
        clock = self._now_ns
        return RateSeries(heard=lambda nbytes: moved.add(clock(), 0, nbytes))

"""A run as it is seen while it runs: counts and figures put together to snapshots.

The book of a run tells it of each unit of work; all else it looks up where it is kept: in the
ledger, in the measures.  It changes nothing of a run and judges nothing that the run judges.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchserver.check.verdict import Finding, Ledger, Verdict, worst
from benchserver.clock import NS_PER_S, Clock, utc_now
from benchserver.config.watch import Watch
from benchserver.errors import one_line
from benchserver.monitor.pace import Pace
from benchserver.monitor.resources import L1_MAY_LIE_IN, Resources
from benchserver.monitor.snapshot import HitsNow, OperationNow, Phase, Snapshot
from benchserver.stats.latency import LatencySeries, LatencySummary
from benchserver.stats.measures import Measures, Series

_LAST_FAILURES = 8
_FAILURE_CHARS = 400

_TOTALS_EVERY_NS = 30 * NS_PER_S
"""The percentiles of a whole run take a millisecond or two a series: the loop is not held for that
each time that somebody looks."""


@dataclass(slots=True)
class _Totals:
    """Percentiles of one series, as they were when it had so many."""

    count: int = 0
    read_ns: int = 0
    summary: LatencySummary | None = None


class Monitor:
    """What is known of one run; every method is cheap, and is called on the event loop."""

    def __init__(
        self,
        *,
        unit: str,
        ledger: Ledger,
        measures: Measures,
        clock: Clock,
        watch: Watch | None = None,
        total_units: int | None = None,
        duration_s: float | None = None,
        calendar: Callable[[], str] = utc_now,
    ) -> None:
        """The run begins now; `unit` is what it counts, `calendar` says what time it is.

        `watch` says how often resources are looked at, and by how much each may grow an hour.
        """
        self._unit = unit
        self._ledger = ledger
        self._measures = measures
        self._clock = clock
        self._total_units = total_units
        self._duration_s = duration_s
        self._calendar = calendar
        self._began_ns = clock.now_ns()
        self._counts = dict.fromkeys(Verdict, 0)
        self._pace = Pace(self._began_ns)
        self._failures = deque[str](maxlen=_LAST_FAILURES)
        self._asked_chunks = 0
        self.reconnects = 0
        """How often the server was lost and met again."""
        self.stalled_s = 0.0
        """For how long nothing was answered and nothing concluded."""
        self._hit_chunks = 0
        self._totals: dict[Series, _Totals] = {}
        watch = watch or Watch()
        self.resources = Resources(watch.bounds, watch.growth_every_s)
        self._kept_bytes: Callable[[], int] = lambda: 0
        self.phase: Phase = "starting"

    def concluded(self, label: str, findings: Sequence[Finding]) -> None:
        """Hear of a unit of work that has ended, and of what was found."""
        self._counts[worst(findings)] += 1
        self._pace.add(self._clock.now_ns())
        for finding in findings:
            if finding.verdict is not Verdict.VALID and not finding.follows:
                text = f"{label}: {finding.check.name}: {finding.text}"
                self._failures.append(one_line(text, _FAILURE_CHARS))

    def looked_up(self, asked_chunks: int, hit_chunks: int) -> None:
        """Hear of a LOOKUP of a load: how many chunks it asked for, and how many it found."""
        self._asked_chunks += asked_chunks
        self._hit_chunks += hit_chunks

    def keeps(self, kept_bytes: Callable[[], int]) -> None:
        """Ask, whenever resources are looked at, what a scenario keeps by design, up to a bound."""
        self._kept_bytes = kept_bytes

    def see(self, values: Mapping[str, float], l1_used: float) -> tuple[str, ...]:
        """Take what is held of resources now, and what lies in the server's L1.

        Returns what has begun to grow, in words.
        """
        filling = {**dict.fromkeys(L1_MAY_LIE_IN, l1_used), "our memory": float(self._kept_bytes())}
        return self.resources.see(self._at_s(), values, filling)

    def server_restarted(self, why: str) -> None:
        """Hear that the server is another process now."""
        self.resources.begin_anew(self._at_s(), why)

    def snapshot(self) -> Snapshot:
        """Return what is known now."""
        now_ns = self._clock.now_ns()
        measures, counts = self._measures, self._counts
        rates = {one.name: rate.gigabytes_per_s() for one, rate in measures.rates.items()}
        return Snapshot(
            at_s=(now_ns - self._began_ns) / NS_PER_S,
            time=self._calendar(),
            phase=self.phase,
            unit=self._unit,
            verdict=self._verdict(),
            proven=counts[Verdict.VALID],
            failed=counts[Verdict.INVALID],
            unproven=counts[Verdict.UNKNOWN],
            calls=measures.attempted,
            units_per_s=self._pace.per_s(now_ns),
            operations=tuple(
                self._operation(one, latencies, now_ns)
                for one, latencies in measures.latencies.items()
                if latencies.count or measures.errors[one]
            ),
            hits=self._hits(),
            gb_per_s={name: rate for name, rate in rates.items() if rate is not None},
            failures=self._last_failures(),
            failed_checks=self._failed_checks(),
            resources=self.resources.now(),
            reconnects=self.reconnects,
            stalled_s=self.stalled_s,
            total_units=self._total_units,
            duration_s=self._duration_s,
        )

    def _at_s(self) -> float:
        return (self._clock.now_ns() - self._began_ns) / NS_PER_S

    def _verdict(self) -> Verdict:
        """Return the verdict so far: what a check still owes does not count against it yet."""
        tallies = self._ledger.tallies.values()
        if any(tally.failed for tally in tallies):
            return Verdict.INVALID
        if any(tally.unproven for tally in tallies) or not self._counts[Verdict.VALID]:
            return Verdict.UNKNOWN
        return Verdict.VALID

    def _failed_checks(self) -> Mapping[str, int]:
        tallies = self._ledger.tallies.items()
        return {check.name: tally.failed for check, tally in tallies if tally.failed}

    def _last_failures(self) -> tuple[str, ...]:
        """Return the last lines of units, or those that the run itself has found."""
        if self._failures:
            return tuple(self._failures)
        causes = [
            one_line(f"{check.name}: {tally.cause}", _FAILURE_CHARS)
            for check, tally in self._ledger.tallies.items()
            if tally.cause
        ]
        return tuple(causes[:_LAST_FAILURES])

    def _hits(self) -> HitsNow | None:
        if not self._asked_chunks:
            return None
        return HitsNow(asked_chunks=self._asked_chunks, hit_chunks=self._hit_chunks)

    def _operation(self, series: Series, latencies: LatencySeries, now_ns: int) -> OperationNow:
        total = self._total(series, latencies, now_ns)
        lately = self._measures.rolling(series)
        return OperationNow(
            name=series.name,
            count=latencies.count,
            errors=self._measures.errors[series],
            total_ms=latencies.sum_ns / 1e6,
            rate_per_s=lately.rate_per_s,
            p50_ms=lately.p50_ms,
            p99_ms=lately.p99_ms,
            p999_ms=lately.p999_ms,
            total_p50_ms=None if total is None else total.p50_ms,
            total_p99_ms=None if total is None else total.p99_ms,
        )

    def _total(
        self, series: Series, latencies: LatencySeries, now_ns: int
    ) -> LatencySummary | None:
        """Return the percentiles of the whole run, some seconds old at most."""
        kept = self._totals.setdefault(series, _Totals())
        fresh = kept.summary is not None and now_ns - kept.read_ns < _TOTALS_EVERY_NS
        fresh = fresh and self.phase != "over"
        if latencies.count != kept.count and not fresh:
            self._totals[series] = kept = _Totals(latencies.count, now_ns, latencies.summary())
        return kept.summary

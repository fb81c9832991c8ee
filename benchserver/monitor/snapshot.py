"""What is known of a run at one moment, as values: all that who looks at a running run may see.

Times are those of the run's clock, in seconds since it began.  What is not known is None: a figure
without a single call, a resource that nobody could look at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from benchserver.check.verdict import Verdict

Phase = Literal["starting", "running", "ending", "over"]
"""Meeting the server and registering; the scenario plays; cleaning up; done."""

Side = Literal["ours", "server"]
Unit = Literal["bytes", "count"]
Growth = Literal["flat", "grows", "cannot tell yet", "not measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationNow:
    """One series of latencies: how many, how many went wrong, and how long they took.

    `total_ms` is how long all of them took together.  `rate_per_s` and the percentiles without
    `total_` are those of the last minute.
    """

    name: str
    count: int
    errors: int
    total_ms: float
    rate_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    total_p50_ms: float | None
    total_p99_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HitsNow:
    """Chunks that were asked for, and those of them that LOOKUP found."""

    asked_chunks: int
    hit_chunks: int

    @property
    def ratio(self) -> float | None:
        """Return the share that was found, or None if none was asked for."""
        return self.hit_chunks / self.asked_chunks if self.asked_chunks else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceNow:
    """One resource of one side: what is in use now, and whether that grows.

    `value` None: it was not seen.  Slopes are those of `unit` an hour, None where there is none
    yet; `low` and `high` are the ends of its confidence interval.  `reason` says why, in words.
    """

    name: str
    side: Side
    unit: Unit
    value: float | None
    verdict: Growth
    reason: str
    slope_per_hour: float | None = None
    low_per_hour: float | None = None
    high_per_hour: float | None = None
    bound_per_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A run at one moment.

    `at_s` counts from its begin; `time` is that of the calendar, UTC.  `unit` is what `proven`,
    `failed` and `unproven` count: "sequence".  `verdict` is the one so far: valid as long as
    something is proven and nothing else was found.  `failures` are the last lines on what went
    wrong; `failed_checks` counts them by check.  `total_units` and `duration_s` say when the run
    will end, if anything does.
    """

    at_s: float
    time: str
    phase: Phase
    unit: str
    verdict: Verdict
    proven: int
    failed: int
    unproven: int
    calls: int
    units_per_s: float
    operations: tuple[OperationNow, ...]
    hits: HitsNow | None
    gb_per_s: Mapping[str, float]
    failures: tuple[str, ...]
    failed_checks: Mapping[str, int]
    resources: tuple[ResourceNow, ...]
    reconnects: int
    stalled_s: float
    total_units: int | None
    duration_s: float | None

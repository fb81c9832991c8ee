"""A run as it is seen while it runs."""

from __future__ import annotations

import pytest

from benchserver.check.verdict import (
    Check,
    Ledger,
    Verdict,
    failed,
    not_looked_at,
    passed,
    unproven,
)
from benchserver.clock import NS_PER_S, VirtualClock
from benchserver.monitor.monitor import Monitor
from benchserver.stats.measures import Measures, Series

GOOD, LATE = Check("good", "it is good"), Check("late", "it is in time")
STORE, LOOKUP = Series("STORE"), Series("LOOKUP", "warm")
MS = 1_000_000


class Watched:
    """A monitor, and what it looks at."""

    def __init__(self) -> None:
        self.clock = VirtualClock(7, by_hand=True)
        self.ledger = Ledger([GOOD, LATE])
        self.measures = Measures((STORE, LOOKUP), (STORE,), self.clock.now_ns)
        self.monitor = Monitor(
            unit="try",
            ledger=self.ledger,
            measures=self.measures,
            clock=self.clock,
            total_units=9,
            duration_s=60.0,
            calendar=lambda: "2026-01-02T03:04:05.678+00:00",
        )


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_at_the_begin_nothing_is_known(watched: Watched) -> None:
    seen = watched.monitor.snapshot()
    assert (seen.at_s, seen.time, seen.phase) == (0, "2026-01-02T03:04:05.678+00:00", "starting")
    assert (seen.unit, seen.total_units, seen.duration_s) == ("try", 9, 60.0)
    assert (seen.proven, seen.failed, seen.unproven, seen.units_per_s) == (0, 0, 0, 0)
    assert seen.verdict is Verdict.UNKNOWN
    assert seen.operations == ()
    assert seen.hits is None
    assert (dict(seen.gb_per_s), dict(seen.failed_checks), seen.failures) == ({}, {}, ())


@pytest.mark.asyncio
async def test_it_counts_units_and_says_the_verdict_so_far(watched: Watched) -> None:
    monitor, ledger = watched.monitor, watched.ledger
    monitor.phase = "running"
    monitor.concluded("try=0", [passed(GOOD)])
    ledger.add([passed(GOOD)])
    await watched.clock.move_ns(2 * NS_PER_S)
    seen = monitor.snapshot()
    assert (seen.proven, seen.at_s, seen.units_per_s) == (1, 2.0, 0.5)
    assert seen.verdict is Verdict.VALID  # `late` has not spoken: nothing is wrong with that yet
    late = [passed(GOOD), unproven(LATE, "no\nanswer"), not_looked_at(LATE, "nor here")]
    monitor.concluded("try=1", late)
    ledger.add(late)
    seen = monitor.snapshot()
    assert (seen.unproven, seen.verdict) == (1, Verdict.UNKNOWN)
    assert seen.failures == ("try=1: late: no answer",)
    assert dict(seen.failed_checks) == {}


def test_it_keeps_the_last_failures_alone(watched: Watched) -> None:
    for number in range(100):
        found = [failed(GOOD, f"bad {number}" + "x" * 1000)]
        watched.monitor.concluded(f"try={number}", found)
        watched.ledger.add(found)
    seen = watched.monitor.snapshot()
    assert seen.verdict is Verdict.INVALID
    assert dict(seen.failed_checks) == {"good": 100}
    assert [text.partition("x")[0] for text in seen.failures] == [
        f"try={number}: good: bad {number}" for number in range(92, 100)
    ]
    assert all(len(text) <= 400 for text in seen.failures)


def test_what_the_run_itself_found_is_said_where_no_unit_failed(watched: Watched) -> None:
    watched.ledger.add([failed(LATE, "a connection was lost")])
    assert watched.monitor.snapshot().failures == ("late: a connection was lost",)


@pytest.mark.asyncio
async def test_it_says_the_figures_of_what_was_called(watched: Watched) -> None:
    measures = watched.measures
    for took in (1, 2, 3):
        measures.latencies[STORE].add(took * MS)
    measures.errors[STORE] += 1
    measures.rates[STORE].add(3_000_000, MS)
    measures.attempted = 4
    watched.monitor.looked_up(8, 2)
    await watched.clock.move_ns(NS_PER_S)
    seen = watched.monitor.snapshot()
    (store,) = seen.operations
    assert (store.name, store.count, store.errors, store.rate_per_s) == ("STORE", 3, 1, 3.0)
    assert store.total_p50_ms == pytest.approx(2, rel=0.01)
    assert store.total_p99_ms == pytest.approx(3, rel=0.01)
    assert dict(seen.gb_per_s) == {"STORE": 3.0}
    assert seen.calls == 4
    assert seen.hits is not None
    assert seen.hits.ratio == 0.25


@pytest.mark.asyncio
async def test_percentiles_of_the_whole_run_are_some_seconds_old_at_most(watched: Watched) -> None:
    add = watched.measures.latencies[STORE].add
    add(MS)
    assert watched.monitor.snapshot().operations[0].total_p99_ms == 1.0
    add(5 * MS)
    assert watched.monitor.snapshot().operations[0].total_p99_ms == 1.0
    assert watched.monitor.snapshot().operations[0].count == 2
    await watched.clock.move_ns(31 * NS_PER_S)
    assert watched.monitor.snapshot().operations[0].total_p99_ms == 5.0

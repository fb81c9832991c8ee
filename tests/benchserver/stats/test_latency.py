"""Latency numbers against the plain list of what was counted."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.stats.latency import LatencySeries, LatencySummary, RateSeries

MS = 1_000_000


def series(*values_ns: int) -> LatencySeries:
    made = LatencySeries()
    for value in values_ns:
        made.add(value)
    return made


def test_nothing_counted() -> None:
    assert LatencySeries().summary() is None


def test_one_latency_is_every_number() -> None:
    # 10.0005 ms lies inside a bucket of 8 us: no percentile may leave [min, max].
    for value in (10_000_500, 1_234_567_891, 5 * MS, 1_000, 999, 1, 0):
        assert series(value).summary() == LatencySummary(
            count=1,
            mean_ms=value / 1e6,
            min_ms=value / 1e6,
            p50_ms=value / 1e6,
            p90_ms=value / 1e6,
            p99_ms=value / 1e6,
            p999_ms=value / 1e6,
            max_ms=value / 1e6,
        )


def test_known_numbers() -> None:
    summary = series(*(n * MS for n in range(1, 101))).summary()
    assert summary is not None
    assert (summary.count, summary.mean_ms) == (100, 50.5)
    assert (summary.min_ms, summary.max_ms) == (1.0, 100.0)
    assert summary.p50_ms == pytest.approx(50.0, rel=1e-3)
    assert summary.p90_ms == pytest.approx(90.0, rel=1e-3)
    assert summary.p99_ms == pytest.approx(99.0, rel=1e-3)
    assert summary.p999_ms == 100.0


def test_two_digits_are_within_a_hundredth() -> None:
    coarse = LatencySeries(digits=2)
    for n in range(1, 1001):
        coarse.add(n * MS)
    summary = coarse.summary()
    assert summary is not None
    assert summary.p50_ms == pytest.approx(500.0, rel=1e-2)
    assert summary.p999_ms == pytest.approx(999.0, rel=1e-2)
    assert summary.p50_ms != pytest.approx(500.0, rel=1e-3)


@given(st.lists(st.integers(1_000, 3_600 * 1_000 * MS), min_size=1, max_size=60))
def test_numbers_of_any_list(values: list[int]) -> None:
    summary = series(*values).summary()
    assert summary is not None
    assert summary.count == len(values)
    assert summary.mean_ms == pytest.approx(sum(values) / len(values) / 1e6)
    assert (summary.min_ms, summary.max_ms) == (min(values) / 1e6, max(values) / 1e6)
    ordered = sorted(values)
    shown_at = {
        50: summary.p50_ms,
        90: summary.p90_ms,
        99: summary.p99_ms,
        99.9: summary.p999_ms,
    }
    for percent, shown in shown_at.items():
        rank = math.ceil(percent * len(values) / 100)
        # Microseconds, in buckets of three digits.
        assert shown == pytest.approx(ordered[rank - 1] / 1e6, rel=2e-3, abs=2e-3)
        assert summary.min_ms <= shown <= summary.max_ms


def test_longer_than_the_longest_bucket_is_clamped_in_percentiles_alone() -> None:
    day = 86_400 * 1_000 * MS
    summary = series(day, day).summary()
    assert summary is not None
    assert summary.max_ms == summary.mean_ms == 86_400_000.0
    assert (summary.count, summary.clamped) == (2, 2)


def test_an_hour_is_not_clamped_and_neither_is_nothing() -> None:
    summary = series(0, 3_600 * 1_000 * MS).summary()
    assert summary is not None
    assert (summary.count, summary.clamped, summary.censored) == (2, 0, 0)


def test_what_had_no_answer_counts_as_long_as_it_was_waited_for() -> None:
    made = series(*[1 * MS] * 97)
    for _ in range(3):
        made.add_censored(10_000 * MS)
    summary = made.summary()
    assert summary is not None
    assert (summary.count, summary.censored, summary.clamped) == (100, 3, 0)
    assert summary.p50_ms == pytest.approx(1.0, rel=1e-3)
    # Left out, they would make the server look a thousand times faster.
    assert summary.p99_ms == pytest.approx(10_000.0, rel=1e-3)
    assert summary.max_ms == 10_000.0


@given(st.lists(st.lists(st.integers(0, 4_000 * 1_000 * MS), max_size=12), min_size=1, max_size=5))
def test_merged_series_are_as_one_that_counted_all(parts: list[list[int]]) -> None:
    total, whole = LatencySeries(), series(*(value for part in parts for value in part))
    for part in parts:
        total.merge(series(*part))
    assert total.summary() == whole.summary()


def test_merging_counts_what_was_censored_and_clamped() -> None:
    total, other = series(1 * MS), series(2 * 3_600 * 1_000 * MS)
    other.add_censored(5 * MS)
    total.merge(other)
    summary = total.summary()
    assert summary is not None
    assert (summary.count, summary.clamped, summary.censored) == (3, 1, 1)


def test_a_week_takes_no_more_memory() -> None:
    made = series(*range(0, 2_000_000, 1_000))
    state = [value for value in vars(made).values() if isinstance(value, list | dict | set)]
    assert state == []


def test_rates_are_bytes_over_busy_time() -> None:
    rate = RateSeries()
    assert rate.gigabytes_per_s() is None
    rate.add(3_000_000_000, 1_000_000_000)
    rate.add(1_000_000_000, 1_000_000_000)
    assert rate.gigabytes_per_s() == 2.0
    other = RateSeries()
    other.add(2_000_000_000, 2_000_000_000)
    rate.merge(other)
    assert rate.gigabytes_per_s() == 1.5

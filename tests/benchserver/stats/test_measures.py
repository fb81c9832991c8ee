"""Figures by series: declared, in order, and merged."""

from __future__ import annotations

import pytest

from benchserver.stats.measures import Measures, Series

PING = Series("PING")
SLOW = Series("PING", "slow")
BYTES = Series("STORE")


def measured(*latencies_ns: int, series: Series = PING) -> Measures:
    measures = Measures([series], [BYTES])
    for latency_ns in latencies_ns:
        measures.latencies[series].add(latency_ns)
        measures.rates[BYTES].add(1_000, latency_ns)
        measures.attempted += 1
    return measures


def counts(measures: Measures) -> dict[str, int]:
    summaries = {one.name: series.summary() for one, series in measures.latencies.items()}
    return {name: summary.count for name, summary in summaries.items() if summary is not None}


def test_a_series_is_named_by_operation_and_kind() -> None:
    assert [PING.name, SLOW.name] == ["PING", "PING slow"]
    assert Series("PING", "slow") == SLOW != PING


def test_what_was_not_declared_cannot_be_counted() -> None:
    with pytest.raises(KeyError):
        measured().latencies[SLOW].add(1)


def test_measures_of_several_merge_into_those_of_one() -> None:
    total = measured(1_000, 3_000)
    total.merge(measured(2_000))
    total.merge(measured(9_000, series=SLOW))
    assert counts(total) == {"PING": 3, "PING slow": 1}
    assert total.attempted == 4
    summary = total.latencies[PING].summary()
    assert summary is not None
    assert (summary.min_ms, summary.mean_ms, summary.max_ms) == (0.001, 0.002, 0.003)
    assert total.rates[BYTES].nbytes == 4_000
    assert total.rates[BYTES].busy_ns == 15_000


def test_a_merge_leaves_what_it_took_from_alone() -> None:
    total, part = Measures(), measured(2_000)
    total.merge(part)
    total.latencies[PING].add(5_000)
    assert counts(part) == {"PING": 1}


def test_each_latency_is_counted_for_the_last_minute_and_by_column_of_time() -> None:
    now_ns = [0]
    measures = Measures([BYTES], [BYTES], lambda: now_ns[0])
    for second in range(100):
        now_ns[0] = second * 1_000_000_000
        measures.latencies[BYTES].add(2_000_000)
    lately = measures.rolling(BYTES)
    assert 60 <= lately.count <= 65
    assert lately.p99_ms == pytest.approx(2, rel=0.04)
    cells = measures.heat[BYTES].counts(measures.heat[BYTES].length_ns)
    assert [count for _, _, count in cells] == [1] * 100
    other = Measures([BYTES], [BYTES], lambda: 0)
    other.merge(measures)
    assert other.heat[BYTES].counts(1_000_000_000) == cells

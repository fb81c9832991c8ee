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

"""What of a request counts in which series."""

from __future__ import annotations

from benchserver.clock import NS_PER_MS
from benchserver.history import Outcome
from benchserver.scenarios.load.records import RequestRecord
from benchserver.scenarios.load.series import (
    LAG,
    LOOKUP,
    QUEUED,
    RATES,
    RESPONSE,
    RETRIEVE,
    RETRIEVE_REPLY,
    SERIES,
    SERVICE,
    STORE,
    count,
)
from benchserver.stats.latency import LatencySummary
from benchserver.stats.measures import Measures, Series
from tests.benchserver.scenarios.load.made import clocking, lookup, moved, record


def counted(*records: RequestRecord) -> tuple[Measures, dict[Series, LatencySummary]]:
    measures = Measures(SERIES, RATES)
    for one in records:
        count(one, measures)
    found = {series: latencies.summary() for series, latencies in measures.latencies.items()}
    return measures, {series: summary for series, summary in found.items() if summary}


def test_each_call_and_the_request_count() -> None:
    one = record(clocking=clocking(planned_ns=1, free_ns=3, sent_ns=4, ended_ns=9, service_ns=5))
    measures, found = counted(one)
    assert {series.name: summary.max_ms for series, summary in found.items()} == {
        "LOOKUP": 1.0,
        "RETRIEVE": 2.0,
        "STORE": 2.0,
        "END_SESSION": 1.0,
        "service": 5.0,
        "response": 8.0,
        "lag": 1.0,
        "queued": 2.0,
    }
    assert measures.attempted == 4
    assert measures.rates[STORE].nbytes == measures.rates[RETRIEVE].nbytes == 1000


def test_a_warm_up_is_in_no_figure() -> None:
    measures, found = counted(record(warmup=True))
    assert not found
    assert measures.attempted == 4


def test_what_was_never_answered_counts_as_long_as_it_was_waited_for() -> None:
    late = lookup(0, outcome=Outcome.UNKNOWN, ended_ns=1000 * NS_PER_MS)
    _, found = counted(record(lookup=late, retrieves=(), stores=(), evidence=()))
    assert (found[LOOKUP].max_ms, found[LOOKUP].censored) == (1000.0, 1)
    assert (found[SERVICE].censored, found[RESPONSE].censored) == (1, 1)
    assert (found[LAG].censored, found[QUEUED].censored) == (0, 0)


def test_what_was_refused_is_in_no_series_of_its_own() -> None:
    _, found = counted(record(retrieves=(moved("RETRIEVE", outcome=Outcome.FAIL),)))
    assert RETRIEVE not in found


def test_replies_that_come_before_their_data_have_a_series() -> None:
    early = moved("RETRIEVE", replied_ns=3 * NS_PER_MS)
    _, found = counted(record(retrieves=(early,)))
    assert (found[RETRIEVE_REPLY].max_ms, found[RETRIEVE].max_ms) == (1.0, 2.0)

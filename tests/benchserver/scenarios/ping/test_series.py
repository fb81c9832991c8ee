"""What of a round counts in which series."""

from __future__ import annotations

from benchserver.history import Outcome
from benchserver.scenarios.ping.records import RoundRecord, TripRecord
from benchserver.scenarios.ping.series import SERIES, count
from benchserver.stats.measures import Measures

MS = 1_000_000


def trip(name: str, latency_ns: int, outcome: Outcome = Outcome.OK) -> TripRecord:
    return TripRecord(name=name, outcome=outcome, began_ns=7, ended_ns=7 + latency_ns, answer=1)


def test_each_operation_has_a_series_and_silence_counts_as_long_as_it_was_waited_for() -> None:
    measures = Measures(SERIES)
    trips = (trip("GET_CHUNK_SIZE", 2 * MS), trip("PING", 3 * MS), trip("PING", 5 * MS))
    count(RoundRecord(number=0, chunk_tokens=256, trips=trips), measures)
    lost = trip("PING", 900 * MS, Outcome.UNKNOWN)
    count(RoundRecord(number=1, chunk_tokens=256, trips=(lost,)), measures)
    sizes, pings = (measures.latencies[series].summary() for series in SERIES)
    assert sizes is not None
    assert pings is not None
    assert (sizes.count, sizes.max_ms) == (1, 2.0)
    assert (pings.count, pings.min_ms, pings.max_ms) == (3, 3.0, 900.0)
    assert (sizes.censored, pings.censored) == (0, 1)
    assert measures.attempted == 4

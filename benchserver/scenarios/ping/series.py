"""The figures of a ping: one series an operation."""

from __future__ import annotations

from benchserver.history import Outcome
from benchserver.scenarios.ping.records import RoundRecord
from benchserver.stats.measures import Measures, Series
from protocol.ops import Op

SERIES = (Series(Op.GET_CHUNK_SIZE.name), Series(Op.PING.name))
"""In the order of reports."""


def count(record: RoundRecord, measures: Measures) -> None:
    """Count every round trip; those without an answer are failures of a check, and no latency."""
    for trip in record.trips:
        measures.attempted += 1
        if trip.outcome is Outcome.OK:
            measures.latencies[Series(trip.name)].add(trip.latency_ns)

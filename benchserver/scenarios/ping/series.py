"""The figures of a ping: one series an operation."""

from __future__ import annotations

from benchserver.history import Outcome
from benchserver.scenarios.ping.records import RoundRecord
from benchserver.stats.measures import Measures, Series
from protocol.ops import Op

SERIES = (Series(Op.GET_CHUNK_SIZE.name), Series(Op.PING.name))
"""In the order of reports."""


def count(record: RoundRecord, measures: Measures) -> None:
    """Count every round trip; one without an answer counts as long as it was waited for.

    Left out, it would make a server that hangs now and then look quick.
    """
    for trip in record.trips:
        measures.attempted += 1
        latencies = measures.latencies[Series(trip.name)]
        if trip.outcome is Outcome.OK:
            latencies.add(trip.latency_ns)
        else:
            latencies.add_censored(trip.latency_ns)
            measures.errors[Series(trip.name)] += 1

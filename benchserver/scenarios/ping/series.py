"""The figures of a ping: one series an operation."""

from __future__ import annotations

from benchserver.history import Outcome
from benchserver.scenarios.ping.records import RoundRecord
from benchserver.stats.measures import Measures, Series
from protocol.ops import Op

OPERATIONS = {op: Series(op.name) for op in (Op.GET_CHUNK_SIZE, Op.PING)}
SERIES = tuple(OPERATIONS.values())


def count(record: RoundRecord, measures: Measures) -> None:
    """Count every round trip; those without an answer are failures of a check, and no latency."""
    for trip in record.trips:
        measures.attempted += 1
        if trip.outcome is Outcome.OK:
            measures.latencies[OPERATIONS[trip.op]].add(trip.latency_ns)

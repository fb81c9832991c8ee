"""The figures of the baseline: which series it has, and what of a sequence counts in which.

A transfer's latency, and so its rate, is that of the landed data.  Where the server replies before
(CUDA), the replies have series of their own.  RETRIEVEs that skip tokens have a series of their own
and are in no rate; LOOKUPs of probes are in no series.

Operations without a good answer are not in the latencies: they are counted as failures by the
checks, and `attempted` counts them too.
"""

from __future__ import annotations

from benchserver.history import LookupRecord, Outcome, SequenceRecord, TransferRecord
from benchserver.scenarios.baseline.plan import Pass
from benchserver.stats.measures import Measures, Series

LOOKUP_COLD = Series("LOOKUP", "cold")
LOOKUP_WARM = Series("LOOKUP", "warm")
STORE = Series("STORE")
STORE_REPLY = Series("STORE", "reply")
RETRIEVE = Series("RETRIEVE")
RETRIEVE_REPLY = Series("RETRIEVE", "reply")
RETRIEVE_PART = Series("RETRIEVE", "part")
VISIBLE = Series("visibility", "lag")
SEQUENCE = Series("sequence", "wall")

SERIES = (
    LOOKUP_COLD,
    STORE,
    STORE_REPLY,
    LOOKUP_WARM,
    RETRIEVE,
    RETRIEVE_REPLY,
    RETRIEVE_PART,
    VISIBLE,
    SEQUENCE,
)
"""In the order of reports."""

RATES = (STORE, RETRIEVE)
_LOOKUPS: dict[str, Series] = {Pass.COLD: LOOKUP_COLD, Pass.WARM: LOOKUP_WARM}


def count(record: SequenceRecord, measures: Measures) -> None:
    """Count every step of a sequence."""
    measures.latencies[SEQUENCE].add(record.wall_ns)
    for step in record.steps:
        if isinstance(step, LookupRecord):
            _count_lookup(step, measures)
        elif isinstance(step, TransferRecord):
            _count_transfer(step, measures)


def _count_lookup(step: LookupRecord, measures: Measures) -> None:
    measures.attempted += step.attempts
    series = _LOOKUPS.get(step.which)
    if series is None:
        return
    if step.outcome is not Outcome.OK:
        measures.errors[series] += 1
        return
    measures.latencies[series].add(step.latency_ns)
    if series == LOOKUP_WARM and step.hits >= step.expected:
        measures.latencies[VISIBLE].add(step.lag_ns)


def _count_transfer(step: TransferRecord, measures: Measures) -> None:
    measures.attempted += 1
    if step.outcome is not Outcome.OK:
        measures.errors[RETRIEVE_PART if step.skip_tokens else Series(step.name)] += 1
        return
    if step.skip_tokens:
        measures.latencies[RETRIEVE_PART].add(step.latency_ns)
        return
    measures.latencies[Series(step.name)].add(step.latency_ns)
    if step.replied_ns < step.ended_ns:
        measures.latencies[Series(step.name, "reply")].add(step.reply_latency_ns)
    measures.rates[Series(step.name)].add(step.nbytes, step.latency_ns)

"""The figures of a load: which series it has, and what of a request counts in which.

What was never answered counts as long as it was waited for, in its own series and in those of its
request: left out, it would make a server that hangs now and then look quick.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchserver.history import CallRecord, Outcome, TransferRecord
from benchserver.scenarios.load.records import RequestRecord
from benchserver.stats.measures import Measures, Series

LOOKUP = Series("LOOKUP")
RETRIEVE = Series("RETRIEVE")
RETRIEVE_REPLY = Series("RETRIEVE", "reply")
STORE = Series("STORE")
STORE_REPLY = Series("STORE", "reply")
FREE = Series("FREE_LOOKUP_LOCKS")
END = Series("END_SESSION")
SERVICE = Series("service")
RESPONSE = Series("response")
LAG = Series("lag")
QUEUED = Series("queued")
PING = Series("PING", "under load")

SERIES = (
    LOOKUP,
    RETRIEVE,
    RETRIEVE_REPLY,
    STORE,
    STORE_REPLY,
    FREE,
    END,
    SERVICE,
    RESPONSE,
    LAG,
    QUEUED,
    PING,
)
"""In the order of reports."""

RATES = (STORE, RETRIEVE)


def count(record: RequestRecord, measures: Measures) -> None:
    """Count every call of a request, and the request, unless it belongs to the warm-up."""
    steps = (record.lookup, *record.retrieves, *record.stores, *record.ends)
    measures.attempted += len(steps)
    if record.warmup:
        return
    _count_calls(steps, measures)
    clocking, latencies = record.clocking, measures.latencies
    unknown = any(step.outcome is Outcome.UNKNOWN for step in steps)
    for series, latency_ns in (
        (SERVICE, clocking.service_ns),
        (RESPONSE, clocking.response_ns),
    ):
        add = latencies[series].add_censored if unknown else latencies[series].add
        add(latency_ns)
    latencies[LAG].add(clocking.lag_ns)
    latencies[QUEUED].add(clocking.queued_ns)


def _count_calls(steps: Iterable[CallRecord], measures: Measures) -> None:
    for step in steps:
        series = Series(step.name)
        measures.errors[series] += step.outcome is not Outcome.OK
        if step.outcome is Outcome.UNKNOWN:
            measures.latencies[series].add_censored(step.latency_ns)
        elif step.outcome is Outcome.OK:
            measures.latencies[series].add(step.latency_ns)
            if isinstance(step, TransferRecord):
                _count_moved(step, measures)


def _count_moved(step: TransferRecord, measures: Measures) -> None:
    if step.replied_ns < step.ended_ns:
        measures.latencies[Series(step.name, "reply")].add(step.reply_latency_ns)
    measures.rates[Series(step.name)].add(step.nbytes, step.latency_ns)

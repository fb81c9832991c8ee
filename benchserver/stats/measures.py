"""All that a run measures, fed with records, in bounded memory."""

from __future__ import annotations

from benchserver.history import LookupRecord, Outcome, SequenceRecord, TransferRecord
from benchserver.stats.latency import LatencySeries, RateSeries

LOOKUP_COLD = "LOOKUP cold"
LOOKUP_WARM = "LOOKUP warm"
STORE = "STORE"
STORE_REPLY = "STORE reply"
RETRIEVE = "RETRIEVE"
RETRIEVE_REPLY = "RETRIEVE reply"
RETRIEVE_PART = "RETRIEVE part"
VISIBLE = "visibility lag"
SEQUENCE = "sequence wall"

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
RATES = (STORE, RETRIEVE)
_LOOKUPS: dict[str, str] = {"cold": LOOKUP_COLD, "warm": LOOKUP_WARM}
_REPLIES = {STORE: STORE_REPLY, RETRIEVE: RETRIEVE_REPLY}


class Measures:
    """Latencies of answered operations, by operation and pass, and transfer rates.

    A transfer's latency, and so its rate, is that of the landed data.  Where the server replies
    before (CUDA), the replies have series of their own.

    RETRIEVEs that skip tokens have a series of their own and are in no rate; LOOKUPs of probes are
    in no series.

    Operations without a good answer are not in the latencies: they are counted as failures by
    the checks, and `attempted` counts them too.
    """

    def __init__(self) -> None:
        self.latencies = {name: LatencySeries() for name in SERIES}
        self.rates = {name: RateSeries() for name in RATES}
        self.attempted = 0

    def add(self, record: SequenceRecord) -> None:
        """Count every step of a sequence."""
        self.latencies[SEQUENCE].add(record.wall_ns)
        for step in record.steps:
            if isinstance(step, LookupRecord):
                self._add_lookup(step)
            elif isinstance(step, TransferRecord):
                self._add_transfer(step)

    def _add_lookup(self, step: LookupRecord) -> None:
        self.attempted += step.attempts
        name = _LOOKUPS.get(step.which)
        if step.outcome is not Outcome.OK or name is None:
            return
        self.latencies[name].add(step.latency_ns)
        if step.which == "warm" and step.hits >= step.expected:
            self.latencies[VISIBLE].add(step.lag_ns)

    def _add_transfer(self, step: TransferRecord) -> None:
        self.attempted += 1
        if step.outcome is Outcome.OK and step.skip_tokens:
            self.latencies[RETRIEVE_PART].add(step.latency_ns)
        elif step.outcome is Outcome.OK:
            self.latencies[step.name].add(step.latency_ns)
            if step.replied_ns < step.latency_ns:
                self.latencies[_REPLIES[step.name]].add(step.replied_ns)
            self.rates[step.name].add(step.nbytes, step.latency_ns)

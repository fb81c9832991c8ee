"""What a load adds up to, request by request, in bounded memory; the warm-up is in no figure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from benchserver.check.promises import undelivered_chunks
from benchserver.check.verdict import Verdict
from benchserver.load.goal import Term, keeps
from benchserver.scenarios.load.records import Missing, RequestRecord
from benchserver.stats.timeline import Timeline


@dataclass(slots=True, kw_only=True)
class Totals:
    """The requests behind the warm-up, of which `begin_ns` is the end.

    Chunks are counted once, however many ranks hold a part of each.
    """

    begin_ns: int
    goal: tuple[Term, ...] = ()
    good: int = 0
    """Requests in which all was well and that kept the goal."""
    warmup: int = 0
    done: int = 0
    failed: int = 0
    last_ns: int = 0
    """When the last one ended."""
    too_short: int = 0
    """Requests of less than a chunk, of which there is nothing to ask."""
    asked_tokens: int = 0
    asked_chunks: int = 0
    hit_chunks: int = 0
    found_warm_chunks: int = 0
    """Hits beyond all that this run can have stored."""
    missing: Counter[Missing] = field(default_factory=Counter)
    """In chunks, by what explains each; of those behind the first of a request nobody knows."""
    undelivered_chunks: int = 0
    """Hits that LOOKUP promised and RETRIEVE did not deliver."""
    stored_bytes: int = 0
    retrieved_bytes: int = 0
    hits_read: int = 0
    """Requests whose hits were retrieved."""
    hits_verified: int = 0
    timeline: Timeline = field(default_factory=Timeline)

    def count(self, record: RequestRecord, verdict: Verdict) -> None:
        """Count a request that has ended."""
        if record.warmup:
            self.warmup += 1
            return
        self.done += 1
        self.failed += verdict is not Verdict.VALID
        self.good += verdict is Verdict.VALID and keeps(self.goal, record.took_ns)
        self._count_chunks(record)
        moved = [step for step in (*record.retrieves, *record.stores) if step.nbytes]
        for step in moved:
            if step.name == "STORE":
                self.stored_bytes += step.nbytes
            else:
                self.retrieved_bytes += step.nbytes
        self.hits_read += record.delivered
        self.hits_verified += bool(record.evidence)
        clocking = record.clocking
        self.last_ns = max(self.last_ns, clocking.ended_ns)
        at_ns = max(0, clocking.ended_ns - self.begin_ns)
        if record.answered:
            nbytes = sum(step.nbytes for step in moved)
            self.timeline.add(at_ns, clocking.response_ns, nbytes)
        else:
            self.timeline.add_error(at_ns, clocking.response_ns)

    def _count_chunks(self, record: RequestRecord) -> None:
        lookup = record.lookup
        self.asked_tokens += record.tokens
        self.asked_chunks += record.chunks
        self.hit_chunks += lookup.hits
        self.found_warm_chunks += max(0, lookup.hits - record.possible)
        if record.missing is not Missing.NOTHING:
            self.missing[record.missing] += 1
        self.undelivered_chunks += undelivered_chunks(lookup, record.retrieves)

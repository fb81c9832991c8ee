"""What happened in a load: one record a request."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from benchserver.history import (
    DigestRecord,
    EndRecord,
    EvidenceRecord,
    LookupRecord,
    Outcome,
    Step,
    TransferRecord,
)


class Missing(enum.Enum):
    """Why a chunk that was stored is not found."""

    NOTHING = "nothing is missing"
    NOT_VISIBLE = "stored less than --visible-within before"
    DROPPED = "dropped, as far as the server's own counters go"
    EVICTED = "evicted, by the server's own counters"
    UNLOADED = "not loaded from L2, by the server's own counters"
    KNOWN = "stored, and a LOOKUP at the same time had missed it already: one loss counts once"
    UNTOLD = "stored, and the server does not say what became of it"
    UNEXPLAINED = "stored, and nothing explains that it is gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocking:
    """When a request was planned, when it could have been sent, when it was, and when it ended.

    It can be sent from `free_ns` on: when the server had given back what it needs.  `service_ns`
    is what its calls took, one after the other.
    """

    planned_ns: int
    free_ns: int
    sent_ns: int
    ended_ns: int
    service_ns: int

    @property
    def response_ns(self) -> int:
        """Return how long after its plan it ended."""
        return self.ended_ns - self.planned_ns

    @property
    def lag_ns(self) -> int:
        """Return how much later than it could have been it was sent: our own doing."""
        return self.sent_ns - max(self.planned_ns, self.free_ns)

    @property
    def queued_ns(self) -> int:
        """Return how long it waited for what the server had not given back."""
        return max(0, self.free_ns - self.planned_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request of a client, with its steps.

    `tokens` and `chunks` are what it asked for, `possible` how many first chunks this run may have
    stored.  `missing` says why fewer were hit than it must find.  `told` is what the server says
    of itself where a promised hit was not delivered.  `locks_known`: no RETRIEVE before it went
    without an answer, so that nobody else has freed its locks.  `looked_at`: its hits were to be
    verified, and `cross_check`: by the server's digests as well.  `looks_back`: it is one of those
    that are asked for again at the end.
    """

    number: int
    client: int
    tokens: int
    chunks: int
    possible: int
    missing: Missing
    told: str
    locks_known: bool
    looked_at: bool
    cross_check: bool
    looks_back: bool
    warmup: bool
    lookup: LookupRecord
    retrieves: tuple[TransferRecord, ...]
    stores: tuple[TransferRecord, ...]
    ends: tuple[EndRecord, ...]
    evidence: tuple[EvidenceRecord, ...]
    digests: tuple[DigestRecord, ...]
    clocking: Clocking

    @property
    def label(self) -> str:
        """Return what lines call it."""
        return request_label(self.number, self.client) + " asked again" * self.looks_back

    @property
    def delivered(self) -> bool:
        """Tell whether every rank got what LOOKUP had promised."""
        return bool(self.retrieves) and all(step.outcome is Outcome.OK for step in self.retrieves)

    @property
    def took_ns(self) -> dict[str, int]:
        """Return how long each part took that a goal may be about; ranks run side by side."""
        took = {
            "response": self.clocking.response_ns,
            "service": self.clocking.service_ns,
            "lookup": self.lookup.latency_ns,
        }
        for part, steps in (("retrieve", self.retrieves), ("store", self.stores)):
            if steps:
                took[part] = max(step.latency_ns for step in steps)
        return took

    @property
    def answered(self) -> bool:
        """Tell whether every call was answered, and said yes."""
        steps = (self.lookup, *self.retrieves, *self.stores, *self.ends)
        return all(step.outcome is Outcome.OK for step in steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRecord(Step):
    """How far a load has come: since its start, and in the last `interval_s`."""

    at_s: float
    done: int
    failed: int
    per_s: float
    interval_s: float


def request_label(number: int, client: int) -> str:
    """Return what lines call a request."""
    return f"request={number} client={client}"

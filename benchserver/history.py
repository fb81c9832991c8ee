"""What happened: frozen records of one sequence, which the checks judge and the reports print.

A record says what was asked, what came and when; it never says whether that is good.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from benchserver.kv.evidence import Evidence


class Outcome(enum.Enum):
    """ok: it happened.  fail: it did not.  unknown: no usable answer; it may have happened."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Probe:
    """A question that not every unit of work asks, by its name in reports."""

    name: str


class Record(Protocol):
    """The history of one unit of a scenario's work."""

    @property
    def label(self) -> str:
        """Return what lines call it."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happened in a unit of work; each kind of record is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord(Step):
    """Something that was asked of the server, from its first request to the end of it.

    All instants are those of the run's clock.  `reason` says why it was not ok.
    """

    name: str
    outcome: Outcome
    began_ns: int
    ended_ns: int
    reason: str = ""

    @property
    def latency_ns(self) -> int:
        """Return how long it took."""
        return self.ended_ns - self.began_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupRecord(CallRecord):
    """LOOKUP and its status queries, until the hit count came; `which` says what for.

    `hits` and `expected` count chunks; `attempts` counts lookups, of which this is the last.
    `stored_ns` is when what it looks for had been stored, for the lookup that waits for that.
    """

    name: str = "LOOKUP"
    which: str
    hits: int
    expected: int
    total: int
    attempts: int = 1
    stored_ns: int | None = None

    @property
    def lag_ns(self) -> int:
        """Return how long after the store it was answered; 0 if it waits for none."""
        return 0 if self.stored_ns is None else self.ended_ns - self.stored_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRecord(CallRecord):
    """One STORE or RETRIEVE of one rank; `chunks` is what the server says it moved.

    It ends when the data has landed; `replied_ns` is when the reply came, which is the same where
    a reply means that.  `skip_tokens` is how many first tokens a RETRIEVE was told to leave out.
    """

    rank: int
    chunks: int
    total: int
    nbytes: int
    replied_ns: int
    skip_tokens: int = 0

    @property
    def reply_latency_ns(self) -> int:
        """Return how long the reply took."""
        return self.replied_ns - self.began_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedRecord(Step):
    """Of `total` chunks that were stored, `missing` were not found in time.

    The server's own counters account for `accounted` of these; `allowed`: the run may lose some.
    """

    missing: int
    accounted: int
    total: int
    allowed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRecord(Step):
    """What one rank's destination blocks and their neighbours hold after a RETRIEVE."""

    rank: int
    content: Evidence
    canaries: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialRecord(Step):
    """What one rank's destination holds after a RETRIEVE that was told to skip the first tokens.

    `skipped` are the blocks that lie wholly in those, `restored` all others.
    """

    rank: int
    skip_tokens: int
    skipped: Evidence
    restored: Evidence
    canaries: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord(Step):
    """What one rank's source blocks hold after all is done: only we may write them."""

    rank: int
    content: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestRecord(Step):
    """The server's digests of one rank's blocks against ours, one a chunk.

    `leg` is `source` or `destination`.  With an outcome other than ok, `server` is empty.
    """

    rank: int
    leg: str
    outcome: Outcome
    ours: tuple[str, ...]
    server: tuple[str, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRecord(CallRecord):
    """One FREE_LOOKUP_LOCKS or END_SESSION."""

    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRecord:
    """All steps of one sequence, in order; `writers` and `readers` are the ranks that must act.

    `probes` are those that it owes.  `overwritten`: its source did not hold its content any more
    when digests were taken.  `aside` names a request that goes with a sequence.
    """

    seq: int
    expect_warm: bool
    cross_check: bool
    probes: frozenset[Probe]
    overwritten: bool
    writers: tuple[int, ...]
    readers: tuple[int, ...]
    steps: tuple[Step, ...]
    began_ns: int
    ended_ns: int
    aside: str = ""

    @property
    def wall_ns(self) -> int:
        """Return how long all of it took, with what is in no latency."""
        return self.ended_ns - self.began_ns

    @property
    def label(self) -> str:
        """Return what lines call it."""
        return sequence_label(self.seq, self.aside)

    def lookup(self, which: str) -> LookupRecord | None:
        """Return the sequence's LOOKUP of that kind, or None if it made none."""
        for step in self.steps:
            if isinstance(step, LookupRecord) and step.which == which:
                return step
        return None


def sequence_label(seq: int, aside: str) -> str:
    """Return what lines call a sequence, or a request that goes with it."""
    return f"seq={seq}, {aside}" if aside else f"seq={seq}"


def worker_label(client: int | None, rank: int) -> str:
    """Return what lines call a worker; `client` None: the run plays one engine."""
    return f"rank={rank}" if client is None else f"client={client} rank={rank}"

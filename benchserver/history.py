"""What happened: frozen records of one sequence, which the checks judge and the reports print.

A record says what was asked, what came and how long it took; it never says whether that is good.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from benchserver.kv.evidence import Evidence


class Outcome(enum.Enum):
    """ok: it happened.  fail: it did not.  unknown: no usable answer; it may have happened."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Pass(enum.Enum):
    """The two passes over a sequence."""

    COLD = "cold"
    WARM = "warm"


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupRecord:
    """LOOKUP and its status queries, until the hit count came.

    `hits` and `expected` count chunks; `attempts` counts lookups, `lag_ns` runs from the last
    STORE's answer to the lookup's, for the warm pass.
    """

    which: Pass
    outcome: Outcome
    hits: int
    expected: int
    total: int
    latency_ns: int
    attempts: int = 1
    lag_ns: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRecord:
    """One STORE or RETRIEVE of one rank; `chunks` is what the server says it moved."""

    name: str
    rank: int
    outcome: Outcome
    chunks: int
    total: int
    nbytes: int
    latency_ns: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRecord:
    """What one rank's destination blocks and their neighbours hold after a RETRIEVE."""

    rank: int
    content: Evidence
    canaries: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """What one rank's source blocks hold after all is done: nobody may write them."""

    rank: int
    content: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestRecord:
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
class EndRecord:
    """One FREE_LOOKUP_LOCKS or END_SESSION."""

    name: str
    request_id: str
    outcome: Outcome
    reason: str = ""


Step = LookupRecord | TransferRecord | EvidenceRecord | SourceRecord | DigestRecord | EndRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRecord:
    """All steps of one sequence, in order; `writers` and `readers` are the ranks that must act."""

    seq: int
    expect_warm: bool
    cross_check: bool
    writers: tuple[int, ...]
    readers: tuple[int, ...]
    steps: tuple[Step, ...]
    wall_ns: int

"""Records of requests, made by hand."""

from __future__ import annotations

from typing import Any

from benchserver.clock import NS_PER_MS
from benchserver.history import EndRecord, EvidenceRecord, LookupRecord, Outcome, TransferRecord
from benchserver.kv.evidence import Evidence, EvidenceKind
from benchserver.scenarios.load.config import LoadConfig
from benchserver.scenarios.load.records import Clocking, Missing, RequestRecord

MATCH = Evidence(kind=EvidenceKind.MATCH, pages=4, checked_bytes=4096)


def config(**changes: Any) -> LoadConfig:
    """Return a load of unique requests in a closed loop, with changes."""
    fields: dict[str, Any] = {
        "workload": "unique",
        "clients": 1,
        "concurrency": 2,
        "rate": None,
        "arrivals": "constant",
        "step_duration_s": 10.0,
        "speedup": None,
        "max_input_tokens": None,
        "duration_s": None,
        "requests": 4,
        "warmup_s": 0.0,
        "prefill_tokens_per_s": None,
        "verify": "all",
        "digests": "off",
        "visible_within_s": 2.0,
        "max_dropped": None,
        "goal": None,
    }
    return LoadConfig(**{**fields, **changes})


def lookup(hits: int = 2, **changes: Any) -> LookupRecord:
    fields: dict[str, Any] = {
        "which": "load",
        "outcome": Outcome.OK,
        "hits": hits,
        "expected": hits,
        "total": 4,
        "began_ns": 0,
        "ended_ns": NS_PER_MS,
    }
    return LookupRecord(**{**fields, **changes})


def moved(name: str, **changes: Any) -> TransferRecord:
    fields: dict[str, Any] = {
        "name": name,
        "rank": 0,
        "outcome": Outcome.OK,
        "chunks": 2,
        "total": 2,
        "nbytes": 1000,
        "began_ns": 2 * NS_PER_MS,
        "replied_ns": 4 * NS_PER_MS,
        "ended_ns": 4 * NS_PER_MS,
    }
    return TransferRecord(**{**fields, **changes})


def ended(outcome: Outcome = Outcome.OK, reason: str = "") -> EndRecord:
    return EndRecord(
        name="END_SESSION",
        request_id="r",
        outcome=outcome,
        began_ns=0,
        ended_ns=NS_PER_MS,
        reason=reason,
    )


def seen(content: Evidence = MATCH, canaries: Evidence = MATCH) -> EvidenceRecord:
    return EvidenceRecord(rank=0, content=content, canaries=canaries)


def clocking(**changes: int) -> Clocking:
    fields = {"planned_ns": 0, "free_ns": 0, "sent_ns": 0, "ended_ns": 9, "service_ns": 8}
    scaled = {name: value * NS_PER_MS for name, value in {**fields, **changes}.items()}
    return Clocking(**scaled)


def record(**changes: Any) -> RequestRecord:
    """Return a request of four chunks of which two hit, in which all is well, with changes."""
    fields: dict[str, Any] = {
        "number": 7,
        "client": 1,
        "chunks": 4,
        "tokens": 140,
        "possible": 4,
        "missing": Missing.NOTHING,
        "told": "",
        "locks_known": True,
        "looked_at": True,
        "cross_check": False,
        "looks_back": False,
        "warmup": False,
        "lookup": lookup(),
        "retrieves": (moved("RETRIEVE"),),
        "stores": (moved("STORE"),),
        "ends": (ended(),),
        "evidence": (seen(),),
        "digests": (),
        "clocking": clocking(),
    }
    return RequestRecord(**{**fields, **changes})

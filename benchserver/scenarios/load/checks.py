"""What a load is judged by: what was stored is found, and every byte is right."""

from __future__ import annotations

from benchserver.check.content import CANARIES, CONTENT, fault_text
from benchserver.check.digests import DIGESTS, on_leg
from benchserver.check.dropped import DROPPED
from benchserver.check.judging import Judge
from benchserver.check.promises import PROMISED, promised
from benchserver.check.sessions import SESSIONS
from benchserver.check.transfers import STORE
from benchserver.check.verdict import Check, Finding, failed, passed, unproven
from benchserver.history import Outcome, Probe, TransferRecord
from benchserver.kv.evidence import Evidence, EvidenceKind
from benchserver.scenarios.load.records import Missing, RequestRecord

LOOK_BACK = Probe("look_back")
"""A request that was stored is asked for again at the end, and read."""

HITS = Check(
    "hits", "LOOKUP finds what this run stored, or the server says why not", explained=True
)


def hits(record: RequestRecord) -> list[Finding]:
    """What was acknowledged is found; more than this run stored is judged by its bytes."""
    lookup = record.lookup
    if lookup.outcome is not Outcome.OK:
        return [unproven(HITS, f"{record.label}: LOOKUP: {lookup.reason}")]
    if record.missing not in (Missing.UNEXPLAINED, Missing.UNTOLD):
        return [passed(HITS)]
    text = (
        f"{record.label}: LOOKUP hit {lookup.hits}/{lookup.total} chunks, expected "
        f"{lookup.expected}/{lookup.total}: STORE of chunk {lookup.hits} was acknowledged"
    )
    if record.missing is Missing.UNTOLD:
        return [unproven(HITS, f"{text}, and the server does not say whether it gave it up")]
    return [failed(HITS, f"{text}, and nothing that the server counts explains that it is gone")]


def promises(record: RequestRecord) -> list[Finding]:
    """Every reading rank got what LOOKUP had counted."""
    return promised(
        record.label,
        record.lookup,
        record.retrieves,
        record.told,
        locks_known=record.locks_known,
    )


def stores(record: RequestRecord) -> list[Finding]:
    """Every writing rank's STORE was answered, and accepted."""
    return [_stored(record, step) for step in record.stores]


def _stored(record: RequestRecord, step: TransferRecord) -> Finding:
    place = f"{record.label} rank={step.rank}: STORE"
    if step.outcome is Outcome.UNKNOWN:
        return unproven(STORE, f"{place}: {step.reason}")
    if step.outcome is Outcome.FAIL:
        return failed(STORE, f"{place}: {step.reason}")
    return passed(STORE)


def content(record: RequestRecord) -> list[Finding]:
    """Every byte that was read is right."""
    return [_seen(record, CONTENT, step.rank, step.content) for step in record.evidence]


def canaries(record: RequestRecord) -> list[Finding]:
    """No byte beside them was written."""
    return [_seen(record, CANARIES, step.rank, step.canaries) for step in record.evidence]


def digests(record: RequestRecord) -> list[Finding]:
    """The server sees the same bytes in the blocks that it has restored."""
    if not record.cross_check:
        return []
    taken = {step.rank: step for step in record.digests}
    ranks = [step.rank for step in record.evidence]
    return [on_leg(record.label, rank, "destination", taken.get(rank)) for rank in ranks]


def _seen(record: RequestRecord, check: Check, rank: int, evidence: Evidence) -> Finding:
    if evidence.kind is EvidenceKind.MATCH:
        return passed(check)
    place = f"{record.label} rank={rank}"
    head = "CANARY OVERWRITTEN" if check is CANARIES else "CHECKSUM MISMATCH"
    what = "untouched by RETRIEVE" if evidence.kind is EvidenceKind.UNTOUCHED else "wrong"
    return failed(
        check,
        f"{place}: {head}, {evidence.bad_pages} of {evidence.pages} pages {what}: "
        f"{fault_text(evidence.first)}",
    )


def sessions(record: RequestRecord) -> list[Finding]:
    """Every lock was freed and the session ended, with an answer."""
    bad = [step for step in record.ends if step.outcome is not Outcome.OK]
    if not bad:
        return [passed(SESSIONS)]
    return [unproven(SESSIONS, f"{record.label}: {step.name}: {step.reason}") for step in bad]


JUDGES: tuple[Judge[RequestRecord], ...] = (
    (HITS, hits),
    (PROMISED, promises),
    (CONTENT, content),
    (CANARIES, canaries),
    (DIGESTS, digests),
    (STORE, stores),
    (SESSIONS, sessions),
)
"""What judges a request by which check, in the order of reports."""

CHECKS = (*(check for check, _ in JUDGES), DROPPED)
"""Those of a load; what was dropped is judged at its end, for all of it."""

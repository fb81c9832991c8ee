"""STORE and RETRIEVE: every rank that must act did, with an answer that says yes.

An accepted STORE proves nothing by itself: the lookups and the bytes do.
"""

from __future__ import annotations

from benchserver.check.verdict import Check, Finding, failed, not_looked_at, passed, unproven
from benchserver.history import Outcome, SequenceRecord, TransferRecord

STORE = Check("store", "every rank's STORE is answered, and accepted", explained=True)
RETRIEVE = Check("retrieve", "every rank's RETRIEVE is answered, and accepted", explained=True)


def stores(record: SequenceRecord) -> list[Finding]:
    """Every writing rank's STORE was accepted, for all its chunks."""
    if record.expect_warm:
        return []
    return _judge(record, STORE, "STORE", record.writers)


def retrieves(record: SequenceRecord) -> list[Finding]:
    """Every reading rank's whole RETRIEVE was accepted; `partial` judges the other kind."""
    return _judge(record, RETRIEVE, "RETRIEVE", record.readers)


def _judge(
    record: SequenceRecord, check: Check, name: str, ranks: tuple[int, ...]
) -> list[Finding]:
    by_rank = {
        step.rank: step
        for step in record.steps
        if isinstance(step, TransferRecord) and step.name == name and not step.skip_tokens
    }
    return [_judge_rank(record, check, name, rank, by_rank.get(rank)) for rank in ranks]


def _judge_rank(
    record: SequenceRecord, check: Check, name: str, rank: int, step: TransferRecord | None
) -> Finding:
    place = f"{record.label} rank={rank}: {name}"
    if step is None:
        return not_looked_at(check, f"{place} did not happen")
    if step.outcome is Outcome.UNKNOWN:
        return unproven(check, f"{place}: {step.reason}")
    if step.outcome is Outcome.FAIL:
        return failed(check, f"{place}: {step.reason}")
    if step.chunks != step.total:
        held = ": the server held the others" if name == "STORE" else ""
        text = f"{place} moved {step.chunks} of {step.total} chunks{held}"
        return failed(check, text)
    return passed(check)

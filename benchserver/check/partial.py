"""A RETRIEVE that is told to skip the first tokens writes all other blocks, and only those."""

from __future__ import annotations

from benchserver.check.content import fault_text
from benchserver.check.lookups import lookup_of
from benchserver.check.verdict import Check, Finding, failed, not_looked_at, passed, unproven
from benchserver.history import (
    Outcome,
    PartialRecord,
    Pass,
    SequenceRecord,
    TransferRecord,
)
from benchserver.kv.evidence import Evidence, EvidenceKind
from benchserver.load.probes import Probe


def partial(record: SequenceRecord) -> list[Finding]:
    """Every reading rank kept what it asked to keep, and got the rest."""
    if Probe.PARTIAL not in record.probes:
        return []
    lookup = lookup_of(record, Pass.PARTIAL)
    place = f"{record.label}: LOOKUP before the partial RETRIEVE"
    if lookup is None:
        return [not_looked_at(Check.PARTIAL, f"{record.label}: no partial RETRIEVE was made")]
    if lookup.outcome is not Outcome.OK:
        return [unproven(Check.PARTIAL, f"{place}: {lookup.reason}")]
    if lookup.hits != lookup.expected:
        counts = f"hit {lookup.hits}/{lookup.total} chunks, expected {lookup.expected}"
        return [failed(Check.PARTIAL, f"{place} {counts}/{lookup.total}")]
    return [_judge_rank(record, rank) for rank in record.readers]


def _judge_rank(record: SequenceRecord, rank: int) -> Finding:
    place = f"{record.label} rank={rank}: RETRIEVE but for the first"
    transfers = [step for step in record.steps if isinstance(step, TransferRecord)]
    moved = next((step for step in transfers if step.rank == rank and step.skip_tokens), None)
    if moved is None:
        return not_looked_at(Check.PARTIAL, f"{place} tokens did not happen")
    place += f" {moved.skip_tokens} tokens"
    if moved.outcome is Outcome.UNKNOWN:
        return unproven(Check.PARTIAL, f"{place}: {moved.reason}")
    if moved.outcome is Outcome.FAIL:
        return failed(Check.PARTIAL, f"{place}: {moved.reason}")
    looks = [step for step in record.steps if isinstance(step, PartialRecord)]
    seen = next((step for step in looks if step.rank == rank), None)
    parts = () if seen is None else (seen.skipped, seen.restored, seen.canaries)
    if seen is None or any(part.kind is EvidenceKind.ABSENT for part in parts):
        return not_looked_at(Check.PARTIAL, f"{place}: nobody could look at the bytes")
    for evidence, what in (
        (seen.skipped, "SKIPPED BLOCKS OVERWRITTEN"),
        (seen.restored, "CHECKSUM MISMATCH of the blocks behind them"),
        (seen.canaries, "CANARY OVERWRITTEN"),
    ):
        if evidence.kind is not EvidenceKind.MATCH:
            return failed(Check.PARTIAL, f"{place}: {what}, {_seen(evidence)}")
    return passed(Check.PARTIAL)


def _seen(evidence: Evidence) -> str:
    return f"{evidence.bad_pages} of {evidence.pages} pages: {fault_text(evidence.first)}"

"""Probes judged: what each must show, and which of them a sequence has made."""

from __future__ import annotations

from benchserver.check.content import fault_text
from benchserver.check.verdict import Check, Finding, failed, not_looked_at, passed, unproven
from benchserver.history import (
    EvidenceRecord,
    Outcome,
    PartialRecord,
    Probe,
    SequenceRecord,
    Step,
    TransferRecord,
)
from benchserver.kv.evidence import Evidence, EvidenceKind
from benchserver.scenarios.baseline.plan import (
    EQUAL_CHUNKS,
    OTHER_TENANTS,
    REUSED_SOURCE,
    SHORTER_RANGE,
    SKIPPED_TOKENS,
    Pass,
)

PARTIAL = Check(
    "partial",
    "a RETRIEVE told to skip the first tokens writes all other blocks, no more",
    explained=True,
)
ISOLATION = Check("isolation", "LOOKUP under another cache salt or model name misses")
BOUNDS = Check("bounds", "LOOKUP of a range that ends before the stored end hits exactly that far")

PROBE_CHECKS = {
    SKIPPED_TOKENS: PARTIAL,
    OTHER_TENANTS: ISOLATION,
    SHORTER_RANGE: BOUNDS,
}
"""The probes that have a check of their own; `content` and `source` judge the others."""

_ASKED = {
    Pass.SALT: ("LOOKUP under another cache salt", "one tenant is given another's KV"),
    Pass.MODEL: ("LOOKUP under another model name", "one model is given another's KV"),
    Pass.BOUNDS: (
        "LOOKUP of a range that ends before the stored end",
        "the range's end is ignored",
    ),
}


def isolation(record: SequenceRecord) -> list[Finding]:
    """A LOOKUP under another salt misses, and so does one under another model name."""
    if OTHER_TENANTS not in record.probes:
        return []
    return [_judge(record, ISOLATION, which) for which in (Pass.SALT, Pass.MODEL)]


def bounds(record: SequenceRecord) -> list[Finding]:
    """A LOOKUP of a shorter range hits to its end, and not beyond."""
    if SHORTER_RANGE not in record.probes:
        return []
    return [_judge(record, BOUNDS, Pass.BOUNDS)]


def _judge(record: SequenceRecord, check: Check, which: Pass) -> Finding:
    name, meaning = _ASKED[which]
    step = record.lookup(which)
    if step is None:
        return not_looked_at(check, f"{record.label}: the {name} was not made")
    if step.outcome is not Outcome.OK:
        return unproven(check, f"{record.label}: {name}: {step.reason}")
    if step.hits != step.expected:
        counts = f"hit {step.hits}/{step.total} chunks, expected {step.expected}/{step.total}"
        return failed(check, f"{record.label}: {name} {counts}: {meaning}")
    return passed(check)


def partial(record: SequenceRecord) -> list[Finding]:
    """Every reading rank kept what it asked to keep, and got the rest."""
    if SKIPPED_TOKENS not in record.probes:
        return []
    lookup = record.lookup(Pass.PARTIAL)
    place = f"{record.label}: LOOKUP before the partial RETRIEVE"
    if lookup is None:
        return [not_looked_at(PARTIAL, f"{record.label}: no partial RETRIEVE was made")]
    if lookup.outcome is not Outcome.OK:
        return [unproven(PARTIAL, f"{place}: {lookup.reason}")]
    if lookup.hits != lookup.expected:
        counts = f"hit {lookup.hits}/{lookup.total} chunks, expected {lookup.expected}"
        return [failed(PARTIAL, f"{place} {counts}/{lookup.total}")]
    return [_partial_of_rank(record, rank) for rank in record.readers]


def _partial_of_rank(record: SequenceRecord, rank: int) -> Finding:
    place = f"{record.label} rank={rank}: RETRIEVE without the first"
    transfers = [step for step in record.steps if isinstance(step, TransferRecord)]
    moved = next((step for step in transfers if step.rank == rank and step.skip_tokens), None)
    if moved is None:
        return not_looked_at(PARTIAL, f"{place} tokens did not happen")
    place += f" {moved.skip_tokens} tokens"
    if moved.outcome is Outcome.UNKNOWN:
        return unproven(PARTIAL, f"{place}: {moved.reason}")
    if moved.outcome is Outcome.FAIL:
        return failed(PARTIAL, f"{place}: {moved.reason}")
    looks = [step for step in record.steps if isinstance(step, PartialRecord)]
    seen = next((step for step in looks if step.rank == rank), None)
    parts = () if seen is None else (seen.skipped, seen.restored, seen.canaries)
    if seen is None or any(part.kind is EvidenceKind.ABSENT for part in parts):
        return not_looked_at(PARTIAL, f"{place}: nobody could look at the bytes")
    for evidence, what in (
        (seen.skipped, "SKIPPED BLOCKS OVERWRITTEN"),
        (seen.restored, "CHECKSUM MISMATCH of the blocks behind them"),
        (seen.canaries, "CANARY OVERWRITTEN"),
    ):
        if evidence.kind is not EvidenceKind.MATCH:
            return failed(PARTIAL, f"{place}: {what}, {_wrong(evidence)}")
    return passed(PARTIAL)


def _wrong(evidence: Evidence) -> str:
    return f"{evidence.bad_pages} of {evidence.pages} pages: {fault_text(evidence.first)}"


def probes_made(record: SequenceRecord) -> frozenset[Probe]:
    """Return which of the probes that a sequence owes were made, whatever they have shown."""
    made = {
        EQUAL_CHUNKS: _all_seen(record, EvidenceRecord),
        REUSED_SOURCE: _all_seen(record, EvidenceRecord),
        SKIPPED_TOKENS: _all_seen(record, PartialRecord),
        OTHER_TENANTS: _answered(record, Pass.SALT) and _answered(record, Pass.MODEL),
        SHORTER_RANGE: _answered(record, Pass.BOUNDS),
    }
    return frozenset(probe for probe in record.probes if made[probe])


def _answered(record: SequenceRecord, which: Pass) -> bool:
    step = record.lookup(which)
    return step is not None and step.outcome is Outcome.OK


def _all_seen(record: SequenceRecord, kind: type[EvidenceRecord | PartialRecord]) -> bool:
    """Tell whether every reading rank's blocks were looked at."""
    seen = {step.rank for step in record.steps if isinstance(step, kind) and _is_seen(step)}
    return seen >= set(record.readers)


def _is_seen(step: Step) -> bool:
    if isinstance(step, EvidenceRecord):
        return step.content.kind is not EvidenceKind.ABSENT
    return isinstance(step, PartialRecord) and step.skipped.kind is not EvidenceKind.ABSENT

"""Bytes: every destination block is right, every source block as it was, nothing beside moved."""

from __future__ import annotations

from benchserver.check.verdict import Check, Finding, failed, not_looked_at, passed
from benchserver.history import EvidenceRecord, SequenceRecord, SourceRecord
from benchserver.kv.evidence import Evidence, EvidenceKind, PageFault

CONTENT = Check("content", "every byte of every rank's destination blocks is right")
SOURCE = Check("source", "no byte of a source block was altered, except by us")
CANARIES = Check("canaries", "no byte beside the destination blocks was written")


def content(record: SequenceRecord) -> list[Finding]:
    """Every reading rank's destination blocks match."""
    return [
        _judge(record, CONTENT, rank, step.content if step else None)
        for rank, step in _by_rank(record)
    ]


def source(record: SequenceRecord) -> list[Finding]:
    """Every writing rank's source blocks still hold what they held before STORE."""
    if record.expect_warm:
        return []
    steps = {step.rank: step for step in record.steps if isinstance(step, SourceRecord)}
    return [
        _judge(record, SOURCE, rank, steps[rank].content if rank in steps else None)
        for rank in record.writers
    ]


def canaries(record: SequenceRecord) -> list[Finding]:
    """Every reading rank's canaries, null block and guards are as they were."""
    return [
        _judge(record, CANARIES, rank, step.canaries if step else None)
        for rank, step in _by_rank(record)
    ]


def _by_rank(record: SequenceRecord) -> list[tuple[int, EvidenceRecord | None]]:
    steps = {step.rank: step for step in record.steps if isinstance(step, EvidenceRecord)}
    return [(rank, steps.get(rank)) for rank in record.readers]


def _judge(record: SequenceRecord, check: Check, rank: int, evidence: Evidence | None) -> Finding:
    place = f"{record.label} rank={rank}"
    if evidence is None or evidence.kind is EvidenceKind.ABSENT:
        return not_looked_at(check, f"{place}: nobody could look at the bytes")
    if evidence.kind is EvidenceKind.MATCH:
        return passed(check)
    count = f"{evidence.bad_pages} of {evidence.pages} pages"
    if check is CANARIES:
        return failed(check, f"{place}: CANARY OVERWRITTEN, {count}: {fault_text(evidence.first)}")
    if check is SOURCE:
        seen = f"{count} were altered: {fault_text(evidence.first)}"
        return failed(check, f"{place}: CHECKSUM MISMATCH, leg source, {seen}")
    what = "untouched by RETRIEVE" if evidence.kind is EvidenceKind.UNTOUCHED else "wrong"
    return failed(
        check,
        f"{place}: CHECKSUM MISMATCH, leg destination, {count} {what}: "
        f"{fault_text(evidence.first)}",
    )


def fault_text(fault: PageFault | None) -> str:
    """Describe the first wrong byte in one line."""
    if fault is None:
        return "no page recorded"
    at = fault.place
    chunk = f"chunk {at.chunk}, " if at.chunk >= 0 else ""
    block = f"block id {fault.block_id}" if fault.block_id >= 0 else "guard beside the tensor"
    return (
        f"{chunk}group {fault.group}, layer {at.layer}, plane {at.plane}, {block}, first at byte "
        f"{fault.offset}: expected {fault.expected.hex()}, seen {fault.seen.hex()} ({fault.owner})"
    )

"""Probes: what LOOKUPs aside of a sequence must answer, and which probes a sequence has made."""

from __future__ import annotations

from benchserver.check.lookups import lookup_of
from benchserver.check.verdict import Check, Finding, failed, not_looked_at, passed, unproven
from benchserver.history import (
    EvidenceRecord,
    Outcome,
    PartialRecord,
    Pass,
    SequenceRecord,
    Step,
)
from benchserver.kv.evidence import EvidenceKind
from benchserver.load.probes import Probe

PROBE_CHECKS = {
    Probe.PARTIAL: Check.PARTIAL,
    Probe.ISOLATION: Check.ISOLATION,
    Probe.BOUNDS: Check.BOUNDS,
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
    if Probe.ISOLATION not in record.probes:
        return []
    return [_judge(record, Check.ISOLATION, which) for which in (Pass.SALT, Pass.MODEL)]


def bounds(record: SequenceRecord) -> list[Finding]:
    """A LOOKUP of a shorter range hits to its end, and not beyond."""
    if Probe.BOUNDS not in record.probes:
        return []
    return [_judge(record, Check.BOUNDS, Pass.BOUNDS)]


def _judge(record: SequenceRecord, check: Check, which: Pass) -> Finding:
    name, meaning = _ASKED[which]
    step = lookup_of(record, which)
    if step is None:
        return not_looked_at(check, f"{record.label}: the {name} was not made")
    if step.outcome is not Outcome.OK:
        return unproven(check, f"{record.label}: {name}: {step.reason}")
    if step.hits != step.expected:
        counts = f"hit {step.hits}/{step.total} chunks, expected {step.expected}/{step.total}"
        return failed(check, f"{record.label}: {name} {counts}: {meaning}")
    return passed(check)


def probes_made(record: SequenceRecord) -> frozenset[Probe]:
    """Return which of the probes that a sequence owes were made, whatever they have shown."""
    made = {
        Probe.EQUAL_CHUNKS: _all_seen(record, EvidenceRecord),
        Probe.REUSED_SOURCE: _all_seen(record, EvidenceRecord),
        Probe.PARTIAL: _all_seen(record, PartialRecord),
        Probe.ISOLATION: _answered(record, Pass.SALT) and _answered(record, Pass.MODEL),
        Probe.BOUNDS: _answered(record, Pass.BOUNDS),
    }
    return frozenset(probe for probe in record.probes if made[probe])


def _answered(record: SequenceRecord, which: Pass) -> bool:
    step = lookup_of(record, which)
    return step is not None and step.outcome is Outcome.OK


def _all_seen(record: SequenceRecord, kind: type[EvidenceRecord | PartialRecord]) -> bool:
    """Tell whether every reading rank's blocks were looked at."""
    seen = {step.rank for step in record.steps if isinstance(step, kind) and _is_seen(step)}
    return seen >= set(record.readers)


def _is_seen(step: Step) -> bool:
    if isinstance(step, EvidenceRecord):
        return step.content.kind is not EvidenceKind.ABSENT
    return isinstance(step, PartialRecord) and step.skipped.kind is not EvidenceKind.ABSENT

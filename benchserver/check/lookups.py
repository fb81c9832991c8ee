"""LOOKUP: cold misses everything, warm hits everything, and a store becomes visible in time."""

from __future__ import annotations

from benchserver.check.verdict import Check, Finding, failed, not_looked_at, passed, unproven
from benchserver.history import LookupRecord, Outcome, Pass, SequenceRecord


def cold_lookup(record: SequenceRecord) -> list[Finding]:
    """The first LOOKUP hits nothing, or everything with --expect-warm."""
    cold = lookup_of(record, Pass.COLD)
    if cold is None:
        return [not_looked_at(Check.COLD_LOOKUP, _at(record, "the cold LOOKUP did not happen"))]
    if cold.outcome is not Outcome.OK:
        return [unproven(Check.COLD_LOOKUP, _at(record, f"cold LOOKUP: {cold.reason}"))]
    if cold.hits == cold.expected:
        return [passed(Check.COLD_LOOKUP)]
    hint = (
        "the cache does not hold what an earlier run with this seed stored"
        if record.expect_warm
        else "the server counts wrongly, or an earlier run with this --seed stored them "
        "(clear the cache, take another seed, or use --expect-warm)"
    )
    return [failed(Check.COLD_LOOKUP, _at(record, f"cold LOOKUP {_counts(cold)}: {hint}"))]


def visibility(record: SequenceRecord) -> list[Finding]:
    """What was stored is found in time."""
    if record.expect_warm:
        return []
    warm = lookup_of(record, Pass.WARM)
    if warm is None:
        return [not_looked_at(Check.VISIBILITY, _at(record, "the warm LOOKUP did not happen"))]
    if warm.outcome is not Outcome.OK:
        return [unproven(Check.VISIBILITY, _at(record, f"the warm LOOKUP {warm.reason}"))]
    if warm.hits >= warm.expected:
        return [passed(Check.VISIBILITY)]
    waited = f"after {warm.attempts} lookups in {warm.lag_ns / 1e6:.1f} ms"
    text = (
        f"stored chunks never became visible: warm LOOKUP {_counts(warm)} {waited}; the STORE was "
        "dropped, or the server's L1 has no room (it answers True then too: see its /status)"
    )
    return [failed(Check.VISIBILITY, _at(record, text))]


def warm_lookup(record: SequenceRecord) -> list[Finding]:
    """The warm LOOKUP counts exactly what was stored."""
    if record.expect_warm:
        return []
    warm = lookup_of(record, Pass.WARM)
    if warm is None:
        return [not_looked_at(Check.WARM_LOOKUP, _at(record, "the warm LOOKUP did not happen"))]
    if warm.outcome is not Outcome.OK:
        return [unproven(Check.WARM_LOOKUP, _at(record, f"warm LOOKUP: {warm.reason}"))]
    if warm.hits == warm.expected:
        return [passed(Check.WARM_LOOKUP)]
    return [failed(Check.WARM_LOOKUP, _at(record, f"warm LOOKUP {_counts(warm)}"))]


def lookup_of(record: SequenceRecord, which: Pass) -> LookupRecord | None:
    """Return the sequence's LOOKUP of that kind, or None if it made none."""
    for step in record.steps:
        if isinstance(step, LookupRecord) and step.which is which:
            return step
    return None


def _counts(lookup: LookupRecord) -> str:
    return f"hit {lookup.hits}/{lookup.total} chunks, expected {lookup.expected}/{lookup.total}"


def _at(record: SequenceRecord, text: str) -> str:
    return f"{record.label}: {text}"

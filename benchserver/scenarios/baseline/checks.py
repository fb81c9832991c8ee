"""The checks of the baseline, and its LOOKUPs judged.

Cold misses everything, warm hits everything, and a store becomes visible in time.
"""

from __future__ import annotations

from benchserver.check.content import CANARIES, CONTENT, SOURCE, canaries, content, source
from benchserver.check.digests import DIGESTS, digests
from benchserver.check.dropped import DROPPED, all_dropped, dropped
from benchserver.check.judging import Judge
from benchserver.check.sessions import SESSIONS, sessions
from benchserver.check.transfers import RETRIEVE, STORE, retrieves, stores
from benchserver.check.verdict import Check, Finding, failed, not_looked_at, passed, unproven
from benchserver.history import LookupRecord, Outcome, SequenceRecord
from benchserver.scenarios.baseline.plan import Pass
from benchserver.scenarios.baseline.probes import (
    BOUNDS,
    ISOLATION,
    PARTIAL,
    bounds,
    isolation,
    partial,
)

COLD_LOOKUP = Check(
    "cold_lookup", "the first LOOKUP hits exactly the chunks that it must", explained=True
)
VISIBILITY = Check(
    "visibility", "stored chunks are found by LOOKUP within --visible-within", explained=True
)
WARM_LOOKUP = Check("warm_lookup", "LOOKUP counts exactly the stored chunks", explained=True)


def cold_lookup(record: SequenceRecord) -> list[Finding]:
    """The first LOOKUP hits nothing, or everything with --expect-warm."""
    cold = record.lookup(Pass.COLD)
    if cold is None:
        return [not_looked_at(COLD_LOOKUP, _at(record, "the cold LOOKUP did not happen"))]
    if cold.outcome is not Outcome.OK:
        return [unproven(COLD_LOOKUP, _at(record, f"cold LOOKUP: {cold.reason}"))]
    if cold.hits == cold.expected:
        return [passed(COLD_LOOKUP)]
    hint = (
        "the cache does not hold what an earlier run with this seed stored"
        if record.expect_warm
        else "the server counts wrongly, or an earlier run with this --seed stored them "
        "(clear the cache, take another seed, or use --expect-warm)"
    )
    return [failed(COLD_LOOKUP, _at(record, f"cold LOOKUP {_counts(cold)}: {hint}"))]


def visibility(record: SequenceRecord) -> list[Finding]:
    """What was stored is found in time."""
    if record.expect_warm:
        return []
    warm = record.lookup(Pass.WARM)
    if warm is None:
        return [not_looked_at(VISIBILITY, _at(record, "the warm LOOKUP did not happen"))]
    if warm.outcome is not Outcome.OK:
        return [unproven(VISIBILITY, _at(record, f"the warm LOOKUP {warm.reason}"))]
    if warm.hits >= warm.expected:
        return [passed(VISIBILITY)]
    if all_dropped(record):
        return [not_looked_at(VISIBILITY, _at(record, "what was dropped cannot be found"))]
    waited = f"after {warm.attempts} lookups in {warm.lag_ns / 1e6:.1f} ms"
    text = (
        f"stored chunks never became visible: warm LOOKUP {_counts(warm)} {waited}; the STORE was "
        "dropped, or the server's L1 has no room (it answers True then too: see its /status)"
    )
    return [failed(VISIBILITY, _at(record, text))]


def warm_lookup(record: SequenceRecord) -> list[Finding]:
    """The warm LOOKUP counts exactly what was stored."""
    if record.expect_warm:
        return []
    warm = record.lookup(Pass.WARM)
    if warm is None:
        return [not_looked_at(WARM_LOOKUP, _at(record, "the warm LOOKUP did not happen"))]
    if warm.outcome is not Outcome.OK:
        return [unproven(WARM_LOOKUP, _at(record, f"warm LOOKUP: {warm.reason}"))]
    if warm.hits == warm.expected:
        return [passed(WARM_LOOKUP)]
    if all_dropped(record):
        return [not_looked_at(WARM_LOOKUP, _at(record, "what was dropped cannot be found"))]
    return [failed(WARM_LOOKUP, _at(record, f"warm LOOKUP {_counts(warm)}"))]


def _counts(lookup: LookupRecord) -> str:
    return f"hit {lookup.hits}/{lookup.total} chunks, expected {lookup.expected}/{lookup.total}"


def _at(record: SequenceRecord, text: str) -> str:
    return f"{record.label}: {text}"


JUDGES: tuple[Judge[SequenceRecord], ...] = (
    (COLD_LOOKUP, cold_lookup),
    (STORE, stores),
    (DROPPED, dropped),
    (VISIBILITY, visibility),
    (WARM_LOOKUP, warm_lookup),
    (RETRIEVE, retrieves),
    (CONTENT, content),
    (SOURCE, source),
    (CANARIES, canaries),
    (DIGESTS, digests),
    (PARTIAL, partial),
    (ISOLATION, isolation),
    (BOUNDS, bounds),
    (SESSIONS, sessions),
)
"""What judges a sequence by which check, in the order of reports."""

CHECKS = tuple(check for check, _ in JUDGES)

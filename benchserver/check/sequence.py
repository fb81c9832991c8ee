"""All checks of one sequence."""

from __future__ import annotations

from benchserver.check.content import canaries, content, source
from benchserver.check.digests import digests
from benchserver.check.lookups import cold_lookup, visibility, warm_lookup
from benchserver.check.partial import partial
from benchserver.check.probes import bounds, isolation
from benchserver.check.sessions import sessions
from benchserver.check.transfers import retrieves, stores
from benchserver.check.verdict import Finding
from benchserver.history import SequenceRecord

SEQUENCE_CHECKS = (
    cold_lookup,
    stores,
    visibility,
    warm_lookup,
    retrieves,
    content,
    source,
    canaries,
    digests,
    partial,
    isolation,
    bounds,
    sessions,
)


def judge_sequence(record: SequenceRecord) -> list[Finding]:
    """Return every finding on one sequence."""
    return [finding for check in SEQUENCE_CHECKS for finding in check(record)]

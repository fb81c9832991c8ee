"""Sessions: every FREE_LOOKUP_LOCKS and END_SESSION was answered."""

from __future__ import annotations

from benchserver.check.verdict import Check, Finding, not_looked_at, passed, unproven
from benchserver.history import EndRecord, Outcome, SequenceRecord

SESSIONS = Check("sessions", "every lock is freed and every session ended, with an answer")


def sessions(record: SequenceRecord) -> list[Finding]:
    """Every session that was opened was ended, with an answer."""
    ends = [step for step in record.steps if isinstance(step, EndRecord)]
    if not ends:
        return [not_looked_at(SESSIONS, f"{record.label}: no session was ended")]
    bad = [step for step in ends if step.outcome is not Outcome.OK]
    if not bad:
        return [passed(SESSIONS)]
    return [
        unproven(
            SESSIONS,
            f"{record.label}: {step.name} of {step.request_id}: {step.reason}",
        )
        for step in bad
    ]

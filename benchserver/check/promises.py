"""Promised: what LOOKUP has counted as hits, RETRIEVE delivers on every rank.

A LOOKUP locks what it hits, so nothing may take it away before it is read.  Where a server breaks
its word all the same, its own counters may say why: they stand in the line.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchserver.check.verdict import Check, Finding, failed, passed, unproven
from benchserver.history import LookupRecord, Outcome, TransferRecord
from protocol.counters import Counters
from protocol.httpapi import ServerStatus

PROMISED = Check("promised", "what LOOKUP has counted as hits, RETRIEVE delivers")


def promised(
    label: str, lookup: LookupRecord, retrieves: Sequence[TransferRecord], told: str
) -> list[Finding]:
    """Judge the RETRIEVEs of a request, one a rank; `told` is what the server says of itself.

    A RETRIEVE without an answer has delivered nothing that anybody knows of, and broken no word.
    """
    return [_delivered(label, lookup, step, told) for step in retrieves]


def undelivered_chunks(lookup: LookupRecord, retrieves: Sequence[TransferRecord]) -> int:
    """Return how many chunks were promised and, on the worst rank, refused or left out."""
    short = [
        lookup.hits - (step.chunks if step.outcome is Outcome.OK else 0)
        for step in retrieves
        if step.outcome is not Outcome.UNKNOWN
    ]
    return max([0, *short])


def told_of(since: Counters | None, status: ServerStatus | None) -> str:
    """Return what explains that a promise is broken, by `/metrics` since the run began and now."""
    found: list[str] = []
    if since is not None:
        counts = (
            (since.evicted_chunks, "evicted"),
            (since.unread_chunks, "could not be read in L1"),
            (since.unloaded_chunks, "could not be loaded from L2"),
        )
        found += [f"{count} chunks {what} since the run began" for count, what in counts if count]
        found = found or ["no counter tells of a chunk that was lost"]
    if status is not None and status.l1_bytes:
        found.append(f"L1 holds {status.l1_used} of {status.l1_bytes} bytes")
    return "; ".join(found) or "neither /metrics nor /status answers"


def _delivered(label: str, lookup: LookupRecord, step: TransferRecord, told: str) -> Finding:
    place = f"{label} rank={step.rank}: LOOKUP promised {lookup.hits} chunks, RETRIEVE"
    if step.outcome is Outcome.UNKNOWN:
        return unproven(PROMISED, f"{place} has no answer: {step.reason}")
    if step.outcome is Outcome.OK and step.chunks >= lookup.hits:
        return passed(PROMISED)
    what = f"delivered {step.chunks}" if step.outcome is Outcome.OK else f"failed: {step.reason}"
    return failed(PROMISED, f"{place} {what}; the server says: {told}")

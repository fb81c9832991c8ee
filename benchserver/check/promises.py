"""Promised: what LOOKUP has counted as hits, RETRIEVE delivers on every rank.

A LOOKUP locks what it hits, so nothing may take it away before it is read.  Where a server breaks
its word all the same, its own counters may say why: they stand in the line.

Locks carry no name.  A RETRIEVE without an answer may or may not have given its lock back, and the
FREE_LOOKUP_LOCKS behind it may then free that of another request.  So nothing is the server's fault
that is missing after such a one.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchserver.check.verdict import Check, Finding, failed, passed, unproven
from benchserver.history import LookupRecord, Outcome, TransferRecord
from protocol.counters import Counters
from protocol.httpapi import ServerStatus

PROMISED = Check("promised", "what LOOKUP has counted as hits, RETRIEVE delivers")


def promised(
    label: str,
    lookup: LookupRecord,
    retrieves: Sequence[TransferRecord],
    told: str,
    *,
    locks_known: bool,
) -> list[Finding]:
    """Judge the RETRIEVEs of a request, one a rank; `told` is what the server says of itself.

    `locks_known`: no RETRIEVE of another request went without an answer before.
    A RETRIEVE without an answer has delivered nothing that anybody knows of, and broken no word.
    """
    return [_delivered(label, lookup, step, told, locks_known) for step in retrieves]


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


def _delivered(
    label: str, lookup: LookupRecord, step: TransferRecord, told: str, locks_known: bool
) -> Finding:
    place = f"{label} rank={step.rank}: LOOKUP promised {lookup.hits} chunks, RETRIEVE"
    if step.outcome is Outcome.UNKNOWN:
        return unproven(PROMISED, f"{place} has no answer: {step.reason}")
    if step.outcome is Outcome.OK and step.chunks >= lookup.hits:
        return passed(PROMISED)
    what = f"delivered {step.chunks}" if step.outcome is Outcome.OK else f"failed: {step.reason}"
    text = f"{place} {what}; the server says: {told}"
    if not locks_known:
        why = "a RETRIEVE before had no answer, and freeing its lock may have freed this one"
        return unproven(PROMISED, f"{text}; {why}")
    return failed(PROMISED, text)

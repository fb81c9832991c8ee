"""Residue: what of ours stays on the server after the run, by its own /status.

Registrations are told apart by instance id.  Sessions and locks are only counted: they are
compared with the counts before the run, and left unjudged while other workers are registered,
since theirs cannot be told from ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchserver.check.verdict import Check, Finding, failed, passed
from protocol.httpapi import ServerStatus

RESIDUE = Check("residue", "no registration, session or lock of ours stays on the server")


@dataclass(frozen=True, slots=True, kw_only=True)
class Residue:
    """What stayed; `foreign` counts registered workers that are not ours."""

    registrations: tuple[int, ...]
    sessions: int
    read_locks: int
    write_locks: int
    foreign: int

    @property
    def clean(self) -> bool:
        """Tell whether nothing is left."""
        counts = self.sessions or self.read_locks or self.write_locks
        return not self.registrations and not counts


def residue_of(
    before: ServerStatus, after: ServerStatus, ours: frozenset[int], *, registered: bool = False
) -> Residue:
    """Compare two states of the server; `ours` are the instance ids of this run.

    `registered`: our workers are still registered, so only sessions and locks are residue.
    """
    instances = after.handle_instances | after.engine_instances
    return Residue(
        registrations=() if registered else tuple(sorted(instances & ours)),
        sessions=max(0, after.active_sessions - before.active_sessions),
        read_locks=max(0, after.read_locked - before.read_locked),
        write_locks=max(0, after.write_locked - before.write_locked),
        foreign=len(instances - ours),
    )


def judge_residue(residue: Residue) -> Finding:
    """Return the finding on what stayed."""
    parts: list[str] = []
    if residue.registrations:
        parts.append(f"registrations of instance {', '.join(map(str, residue.registrations))}")
    if not residue.foreign:
        counts = (
            (residue.sessions, "sessions"),
            (residue.read_locks, "read-locked objects"),
            (residue.write_locks, "write-locked objects"),
        )
        parts.extend(f"{count} {name} more than before the run" for count, name in counts if count)
    if not parts:
        return passed(RESIDUE)
    return failed(RESIDUE, f"the server still holds {'; '.join(parts)} (/status)")

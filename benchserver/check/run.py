"""The checks of every run, whatever its scenario is."""

from __future__ import annotations

from collections.abc import Iterable

from benchserver.check.growth import GROWTH
from benchserver.check.health import HEALTH
from benchserver.check.replies import REPLIES
from benchserver.check.residue import RESIDUE
from benchserver.check.sessions import SESSIONS
from benchserver.check.transport import TRANSPORT
from benchserver.check.verdict import Check, Ledger
from benchserver.history import Probe

RUN = Check("run", "the run did all that it was asked to do")

STAGE_CHECKS = (REPLIES, TRANSPORT, HEALTH, RESIDUE, GROWTH, RUN)
"""In the order of reports, behind those of the scenario."""

_OF_WORKERS = (TRANSPORT, RESIDUE)
"""Those that look at registered workers."""


def new_ledger(
    checks: Iterable[Check], probes: Iterable[Probe] = (), *, workers: bool = True
) -> Ledger:
    """Return the ledger of a run whose scenario brings these checks and probes.

    Without `workers` it has no check of what only they do.  With them it has SESSIONS, whether or
    not the scenario brings it: whatever is open at the end of a run is settled.
    """
    own = tuple(checks)
    if not workers:
        return Ledger((*own, *(c for c in STAGE_CHECKS if c not in _OF_WORKERS)), probes)
    sessions = () if SESSIONS in own else (SESSIONS,)
    return Ledger((*own, *sessions, *STAGE_CHECKS), probes)

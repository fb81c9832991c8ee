"""The checks of every run, whatever its scenario is."""

from __future__ import annotations

from collections.abc import Iterable

from benchserver.check.health import HEALTH
from benchserver.check.replies import REPLIES
from benchserver.check.residue import RESIDUE
from benchserver.check.transport import TRANSPORT
from benchserver.check.verdict import Check, Ledger
from benchserver.history import Probe

RUN = Check("run", "the run did all that it was asked to do")

STAGE_CHECKS = (REPLIES, TRANSPORT, HEALTH, RESIDUE, RUN)
"""In the order of reports, behind those of the scenario."""


def new_ledger(checks: Iterable[Check], probes: Iterable[Probe] = ()) -> Ledger:
    """Return the ledger of a run whose scenario brings these checks and probes."""
    return Ledger((*checks, *STAGE_CHECKS), probes)

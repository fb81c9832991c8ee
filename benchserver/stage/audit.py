"""The residue audit: what `/status` still holds of ours, against what it held before."""

from __future__ import annotations

from functools import partial

from benchserver.check.judging import evaluated
from benchserver.check.residue import RESIDUE, Residue, judge_residue, residue_of
from benchserver.check.verdict import Ledger, unproven
from benchserver.client.http import API_ERRORS, HttpApi
from benchserver.clock import NS_PER_S, Clock
from benchserver.errors import one_line
from protocol.httpapi import ServerStatus

_WITHIN_NS = 2 * NS_PER_S
_POLL_NS = NS_PER_S // 50


async def audit_residue(
    http: HttpApi,
    before: ServerStatus,
    ours: frozenset[int],
    *,
    registered: bool,
    clock: Clock,
    ledger: Ledger,
) -> ServerStatus | None:
    """Poll /status until nothing of ours is left, or for a bounded time, and judge what is.

    `ours` are our instance ids; `registered`: those workers still are, and may be.  Returns what
    it said last, or None if it did not answer.
    """
    deadline_ns = clock.now_ns() + _WITHIN_NS
    residue: Residue | None = None
    asked_ns = clock.now_ns()
    # What was asked for before the deadline and read long after it would say too little.
    while residue is None or (not residue.clean and asked_ns < deadline_ns):
        if residue is not None:
            await clock.sleep_ns(_POLL_NS)
        asked_ns = clock.now_ns()
        try:
            status = await http.status()
            residue = residue_of(before, status, ours, registered=registered)
        except API_ERRORS as error:
            ledger.add([unproven(RESIDUE, one_line(error))])
            return None
    ledger.add([evaluated(RESIDUE, "after the run", partial(judge_residue, residue))])
    if residue.foreign and not residue.clean:
        ledger.skip(
            RESIDUE,
            f"sessions and locks left out: {residue.foreign} other workers are registered",
        )
    return status


def explain_missing(ledger: Ledger, *, registered: bool, audited: bool, why: str) -> None:
    """Say why there was no audit after all was ended, if there should be one.

    `registered`: there were workers.  `audited`: it was made.  The count before they are
    unregistered does not stand for it: it cannot see a registration that stays.
    """
    tally = ledger.tallies.get(RESIDUE)
    if tally is None or audited or tally.failed or tally.unproven:
        return
    if tally.skipped and not tally.passed:
        return
    if not registered:
        ledger.skip(RESIDUE, "nothing was registered")
        return
    ledger.add([unproven(RESIDUE, f"what stays on the server is unknown: {why}")])

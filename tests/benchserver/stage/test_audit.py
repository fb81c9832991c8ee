"""The residue audit over scripted answers of /status, in virtual time."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from benchserver.check.residue import RESIDUE
from benchserver.check.run import new_ledger
from benchserver.check.verdict import Finding, Ledger, Tally, Verdict, failed, passed, unproven
from benchserver.client.http import HttpApi, HttpFailedError
from benchserver.clock import NS_PER_S, VirtualClock
from benchserver.scenarios.baseline.checks import CHECKS
from benchserver.scenarios.baseline.plan import PROBES
from benchserver.stage.audit import audit_residue, explain_missing
from protocol.httpapi import ServerStatus

BEFORE = ServerStatus(
    chunk_size=256,
    active_sessions=0,
    read_locked=0,
    write_locked=0,
    handle_instances=frozenset(),
    engine_instances=frozenset(),
)
OURS = replace(BEFORE, handle_instances=frozenset({7}))
LOCKED = replace(BEFORE, read_locked=2)
FOREIGN = replace(LOCKED, handle_instances=frozenset({99}))


class ScriptedHttp:
    """Answers /status with one thing after the other, the last one for ever."""

    def __init__(self, *answers: ServerStatus | Exception) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def status(self) -> ServerStatus:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def audited(
    http: ScriptedHttp, clock: VirtualClock, *, registered: bool = False
) -> tuple[Ledger, Tally]:
    ledger = new_ledger(CHECKS, PROBES)
    await audit_residue(
        cast(HttpApi, http),
        BEFORE,
        frozenset({7}),
        registered=registered,
        clock=clock,
        ledger=ledger,
    )
    return ledger, ledger.tallies[RESIDUE]


@pytest.mark.asyncio
async def test_it_waits_until_nothing_is_left() -> None:
    http, clock = ScriptedHttp(LOCKED, OURS, BEFORE), VirtualClock()
    _, tally = await audited(http, clock)
    assert (http.asked, tally.passed, tally.failed) == (3, 1, 0)
    assert 0 < clock.now_ns() < NS_PER_S


@pytest.mark.asyncio
async def test_it_does_not_wait_for_ever() -> None:
    http, clock = ScriptedHttp(OURS), VirtualClock()
    _, tally = await audited(http, clock)
    assert (tally.passed, tally.failed) == (0, 1)
    assert "registrations of instance 7" in tally.texts[0]
    assert 2 * NS_PER_S <= clock.now_ns() < 3 * NS_PER_S


@pytest.mark.asyncio
async def test_what_was_read_long_after_it_was_asked_for_is_asked_for_again() -> None:
    """This process stood still while the answer lay there: our registration is long gone."""
    clock = VirtualClock()

    class StandsStill(ScriptedHttp):
        async def status(self) -> ServerStatus:
            if not self.asked:
                await clock.sleep_ns(5 * NS_PER_S)
            return await super().status()

    _, tally = await audited(StandsStill(OURS, BEFORE), clock)
    assert (tally.passed, tally.failed) == (1, 0)


@pytest.mark.asyncio
async def test_registered_workers_are_no_residue_while_they_may_be() -> None:
    _, tally = await audited(ScriptedHttp(OURS), VirtualClock(), registered=True)
    assert (tally.passed, tally.failed) == (1, 0)


@pytest.mark.asyncio
async def test_no_answer_proves_nothing() -> None:
    _, tally = await audited(ScriptedHttp(HttpFailedError("/status: HTTP 500")), VirtualClock())
    assert (tally.verdict, tally.unproven) == (Verdict.UNKNOWN, 1)


@pytest.mark.asyncio
async def test_counts_of_others_are_left_out_and_it_says_so() -> None:
    _, tally = await audited(ScriptedHttp(FOREIGN), VirtualClock())
    assert (tally.passed, tally.failed) == (1, 0)
    assert tally.skipped == "sessions and locks left out: 1 other workers are registered"


@pytest.mark.parametrize(
    ("registered", "skipped", "text"),
    [
        (False, "nothing was registered", ""),
        (True, "", "what stays on the server is unknown: the server was gone"),
    ],
)
def test_why_there_was_no_audit(registered: bool, skipped: str, text: str) -> None:
    ledger = new_ledger(CHECKS, PROBES)
    explain_missing(ledger, registered=registered, audited=False, why="the server was gone")
    tally = ledger.tallies[RESIDUE]
    assert (tally.skipped, tally.texts) == (skipped, [text] if text else [])


@pytest.mark.parametrize("found", [passed(RESIDUE), failed(RESIDUE, "locks")])
def test_what_was_audited_needs_no_explanation(found: Finding) -> None:
    ledger = new_ledger(CHECKS, PROBES)
    ledger.add([found])
    before = repr(ledger.tallies[RESIDUE])
    explain_missing(ledger, registered=True, audited=True, why="the server was gone")
    assert repr(ledger.tallies[RESIDUE]) == before


@pytest.mark.parametrize("answers", [(BEFORE,), (FOREIGN,)])
@pytest.mark.asyncio
async def test_a_count_while_our_workers_are_registered_is_no_audit(
    answers: tuple[ServerStatus, ...],
) -> None:
    """Cleaning up was cut off behind it, and the report said that no registration stays."""
    ledger, tally = await audited(ScriptedHttp(*answers), VirtualClock(), registered=True)
    assert (tally.passed, tally.failed, tally.unproven) == (1, 0, 0)
    explain_missing(ledger, registered=True, audited=False, why="cleaning up took too long")
    assert (tally.passed, tally.failed, tally.unproven) == (1, 0, 1)
    assert tally.texts == ["what stays on the server is unknown: cleaning up took too long"]


@pytest.mark.parametrize("found", [failed(RESIDUE, "locks"), unproven(RESIDUE, "no /status")])
def test_a_count_that_did_not_pass_is_reason_enough(found: Finding) -> None:
    ledger = new_ledger(CHECKS, PROBES)
    ledger.add([found])
    explain_missing(ledger, registered=True, audited=False, why="the server was gone")
    assert ledger.tallies[RESIDUE].texts == [found.text]


def test_residue_that_cannot_be_asked_for_needs_no_further_reason() -> None:
    ledger = new_ledger(CHECKS, PROBES)
    ledger.skip(RESIDUE, "--no-http, and /status does not answer")
    explain_missing(ledger, registered=True, audited=False, why="the server was gone")
    assert not ledger.tallies[RESIDUE].texts

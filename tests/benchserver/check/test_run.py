"""The checks of every run, and its ledger."""

from __future__ import annotations

from benchserver.check.run import STAGE_CHECKS, new_ledger
from benchserver.check.sessions import SESSIONS
from benchserver.check.verdict import Check
from benchserver.history import Probe
from benchserver.scenarios.baseline.checks import CHECKS
from benchserver.scenarios.baseline.plan import PROBES

MINE = Check("mine", "what a scenario of its own looks at")


def test_the_checks_of_a_scenario_stand_before_those_of_the_stage() -> None:
    ledger = new_ledger([MINE], [Probe("asked")])
    assert [check.name for check in ledger.tallies] == [
        "mine",
        "sessions",
        "replies",
        "transport",
        "health",
        "residue",
        "growth",
        "run",
    ]
    assert ledger.not_evaluated() == {"asked": "the run did not get that far"}


def test_sessions_stand_where_the_scenario_has_them() -> None:
    names = [check.name for check in new_ledger([SESSIONS, MINE]).tallies]
    assert names[:3] == ["sessions", "mine", "replies"]


def test_without_workers_nothing_is_judged_that_only_they_do() -> None:
    ledger = new_ledger([MINE], workers=False)
    assert [check.name for check in ledger.tallies] == [
        "mine",
        "replies",
        "health",
        "growth",
        "run",
    ]


def test_every_check_has_a_meaning_and_its_own_name() -> None:
    checks = (*CHECKS, *STAGE_CHECKS)
    assert all(check.meaning for check in checks)
    assert len({check.name for check in checks}) == len(checks) == 20
    assert len({probe.name for probe in PROBES}) == len(PROBES) == 5

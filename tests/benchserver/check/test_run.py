"""The checks of every run, and its ledger."""

from __future__ import annotations

from benchserver.check.run import STAGE_CHECKS, new_ledger
from benchserver.check.verdict import Check
from benchserver.history import Probe
from benchserver.scenarios.baseline.checks import CHECKS
from benchserver.scenarios.baseline.plan import PROBES

MINE = Check("mine", "what a scenario of its own looks at")


def test_the_checks_of_a_scenario_stand_before_those_of_the_stage() -> None:
    ledger = new_ledger([MINE], [Probe("asked")])
    assert [check.name for check in ledger.tallies] == [
        "mine",
        "replies",
        "transport",
        "health",
        "residue",
        "run",
    ]
    assert ledger.not_evaluated() == {"asked": "the run did not get that far"}


def test_every_check_has_a_meaning_and_its_own_name() -> None:
    checks = (*CHECKS, *STAGE_CHECKS)
    assert all(check.meaning for check in checks)
    assert len({check.name for check in checks}) == len(checks) == 18
    assert len({probe.name for probe in PROBES}) == len(PROBES) == 5

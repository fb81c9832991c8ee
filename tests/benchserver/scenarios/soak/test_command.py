"""The soak as a command."""

from __future__ import annotations

from benchserver.scenarios.baseline.command import COMMAND as BASELINE
from benchserver.scenarios.soak.command import COMMAND
from tests.benchserver.scenarios.conftest import MakeStage


def test_it_is_the_baseline_and_owes_whether_anything_grows(make_stage: MakeStage) -> None:
    asked = make_stage().asked
    soak, baseline = COMMAND.scenario(asked).traits, BASELINE.scenario(asked).traits
    assert (soak.owes_growth, baseline.owes_growth) == (True, False)
    assert (soak.checks, soak.probes, soak.series) == (
        baseline.checks,
        baseline.probes,
        baseline.series,
    )

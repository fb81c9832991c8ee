"""The list of runs: every fault has its own, and each switch can be read."""

from __future__ import annotations

import pytest

from benchserver.check.run import STAGE_CHECKS
from benchserver.cli.selftest import chosen
from benchserver.errors import UsageError
from benchserver.refserver.faults.parser import parse_switch
from benchserver.refserver.faults.table import FAULTS
from benchserver.scenarios.baseline.checks import CHECKS
from benchserver.selftest.case import CONTROL, HANDLE, INLINE, SHM, Case
from benchserver.selftest.cases.every import CASES

MAX_RUNS = 120
"""At four seconds each, two at a time, the whole self-test stays within four minutes."""


def test_every_fault_has_a_run_and_every_run_a_fault() -> None:
    assert {case.fault for case in CASES} == {*FAULTS, CONTROL}
    assert len(CASES) <= MAX_RUNS


def test_every_harmful_fault_must_be_caught_as_it_is_by_default_or_sharper() -> None:
    harmful = {case.fault for case in CASES if case.checks}
    assert {name for name, fault in FAULTS.items() if not fault.harmless} <= harmful
    harmless = {case.fault for case in CASES if not case.checks and case.switch == case.fault}
    assert {name for name, fault in FAULTS.items() if fault.harmless} <= harmless


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_a_run_can_be_made(case: object) -> None:
    found = next(one for one in CASES if one is case)
    if found.switch:
        assert parse_switch(found.switch).fault.name == found.fault
    assert set(found.checks) <= {check.name for check in (*CHECKS, *STAGE_CHECKS)}
    assert found.transport in (HANDLE, SHM, INLINE)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_a_fault_of_a_tier_has_one_and_is_read_from_it(case: Case) -> None:
    if case.switch and parse_switch(case.switch).fault.tier is not None:
        assert case.from_l2
    if case.from_l2:
        assert "--l2" in case.serve
        assert case.before is not None
        assert "--expect-warm" in case.options


def test_labels_tell_all_runs_apart() -> None:
    labels = [case.label for case in CASES]
    assert sorted(labels) == sorted(set(labels))


def test_every_transport_has_a_run_without_a_fault() -> None:
    controls = {case.transport for case in CASES if not case.switch}
    assert controls == {HANDLE, SHM, INLINE}


def test_runs_are_chosen_by_name() -> None:
    assert chosen(()) == list(CASES)
    assert {case.fault for case in chosen(("crash", "delay"))} == {"crash", "delay"}
    with pytest.raises(UsageError, match="--only 'flip': no such fault; known: none, delay"):
        chosen(("crash", "flip"))

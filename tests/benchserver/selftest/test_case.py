"""What a run of the self-test is called, and which exit code it must have."""

from __future__ import annotations

from benchserver.selftest.case import SHM, Case


def test_labels() -> None:
    assert Case(switch="").label == "none [handle]"
    case = Case(switch="crash:STORE,done@2", checks=("run",), transport=SHM, note="tiny")
    assert (case.label, case.fault) == ("crash:STORE,done@2 [shm, tiny]", "crash")


def test_the_exit_code_that_is_right() -> None:
    assert Case(switch="delay").expected_exit == 0
    assert Case(switch="flip_byte", checks=("content",)).expected_exit == 1

"""What came of a run against what must: hand-written runs, good and bad."""

from __future__ import annotations

import pytest

from benchserver.selftest.case import Case
from benchserver.selftest.judge import NOT_ASKED, Ended, judge
from benchserver.selftest.table import cells
from tests.benchserver.selftest.handwritten import HARMFUL, HARMLESS, PASSED, ended, report


def test_a_fault_that_is_caught() -> None:
    row = judge(HARMFUL, ended())
    assert row.wrong == ""
    assert (row.caught_by, row.line) == ("content", "content: seq=0: layer 1 is wrong")
    assert cells(row) == (
        "flip_byte:layer=1@2 [handle]",
        "1",
        "1",
        "content",
        "content: seq=0: layer 1 is wrong",
    )


def test_a_harmless_one() -> None:
    row = judge(HARMLESS, PASSED)
    assert (row.wrong, row.caught_by, row.line) == ("", "", "RESULT: PASS, all")


def test_a_server_that_cannot_be_asked_is_no_fault_of_the_bench() -> None:
    assert judge(HARMFUL, ended(fired=NOT_ASKED)).wrong == ""


@pytest.mark.parametrize(
    ("case", "run", "expected"),
    [
        (HARMFUL, PASSED, "NOT CAUGHT"),
        (HARMFUL, ended(fired=0), "the fault never fired"),
        (HARMLESS, ended(exit_code=0, report=report(), fired=0), "the fault never fired"),
        (HARMFUL, ended(exit_code=2), "exit 2, expected 1, content, replies not valid"),
        (HARMFUL, ended(exit_code=-9, report={}, stderr=""), "exit -9 without a report"),
        (HARMFUL, ended(report={}, fired=0, stderr="T\nImportError: x"), "said: T ImportError: x"),
        (HARMFUL, ended(report={}, stdout=""), "it said: nothing"),
        (HARMFUL, ended(report=report()), "not caught by content, replies, but by nothing"),
        (HARMFUL, ended(report=report("content")), "not caught by replies, but by content"),
        (HARMFUL, ended(report=report("residue")), "not caught by content, replies, but by resi"),
        (HARMFUL, ended(stdout="content: layer 2\n"), "the line lacks 'layer 1'"),
        (HARMFUL, ended(stdout=""), "the line lacks 'layer 1'"),
        (HARMLESS, ended(), "exit 1, expected 0, content, replies not valid"),
        (HARMLESS, ended(exit_code=0), "exit 0, but content, replies not valid"),
        (HARMFUL, Ended(trouble="the run did not end within 40 s"), "did not end within 40 s"),
    ],
)
def test_what_is_wrong(case: Case, run: Ended, expected: str) -> None:
    row = judge(case, run)
    assert expected in row.wrong
    assert cells(row)[-1].startswith("WRONG: ")

"""What came of a run against what must: hand-written runs, good and bad."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.selftest.case import SHM, Case
from benchserver.selftest.judge import NOT_ASKED, Ended, Row, judge
from benchserver.selftest.table import cells, document, plain_line, summary

HARMFUL = Case(switch="flip_byte:layer=1@2", checks=("content", "replies"), words=("layer 1",))
HARMLESS = Case(switch="delay")
STDOUT = """\
[seq=0] FAILED content: seq=0: layer 1 is wrong
content: seq=0: layer 1 is wrong
replies: late
RESULT: FAIL (exit 1)
"""


def report(*bad: str) -> dict[str, Any]:
    names = ("content", "replies", "residue")
    return {"checks": {n: {"verdict": "invalid" if n in bad else "valid"} for n in names}}


def ended(**changes: Any) -> Ended:
    fields: dict[str, Any] = {
        "exit_code": 1,
        "stdout": STDOUT,
        "report": report("content", "replies"),
        "fired": 2,
    }
    return Ended(**{**fields, **changes})


PASSED = ended(exit_code=0, stdout="RESULT: PASS, all\n", report=report())


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


def rows() -> list[Row]:
    return [judge(HARMFUL, ended()), judge(HARMLESS, PASSED), judge(HARMFUL, PASSED)]


def test_summaries() -> None:
    assert summary(rows()[:2], 12.3) == (
        "SELFTEST: PASS, 2 faults in 2 runs behaved as they must, in 12 s (exit 0)"
    )
    assert summary(rows(), 1.0) == (
        "SELFTEST: FAIL, 1 of 3 runs are wrong: flip_byte:layer=1@2 [handle] (exit 1)"
    )


def test_the_json_report() -> None:
    found = document(rows(), 12.5, "gpu")
    assert (found["ok"], found["wall_s"], len(found["runs"])) == (False, 12.5, 3)
    assert found["mode"] == "gpu"
    assert found["runs"][0] == {
        "fault": "flip_byte",
        "switch": "flip_byte:layer=1@2",
        "transport": "handle",
        "expected_exit": 1,
        "expected_checks": ["content", "replies"],
        "exit": 1,
        "caught_by": "content",
        "line": "content: seq=0: layer 1 is wrong",
        "wrong": "",
        "wall_s": 0.0,
    }
    dead = document([judge(HARMFUL, Ended(trouble="x"))], 1.0, "cpu")["runs"][0]
    assert (dead["exit"], dead["wrong"]) == (None, "x")


def test_plain_lines_are_short() -> None:
    line = plain_line(("fault", "1", "1", "content", "x" * 500))
    assert len(line) < 190
    assert line.endswith("...")


def test_labels() -> None:
    assert Case(switch="").label == "none [handle]"
    case = Case(switch="crash:STORE,done@2", checks=("run",), transport=SHM, note="tiny")
    assert (case.label, case.fault) == ("crash:STORE,done@2 [shm, tiny]", "crash")

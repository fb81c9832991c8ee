"""The table of the self-test: lines, the last line, JSON, and where rows go."""

from __future__ import annotations

import io

from benchserver.outlet import outlet_for
from benchserver.selftest.case import Case
from benchserver.selftest.judge import Ended, Row, judge
from benchserver.selftest.table import (
    PlainTable,
    document,
    list_line,
    make_table,
    plain_line,
    summary,
)
from tests.benchserver.selftest.handwritten import HARMFUL, HARMLESS, PASSED, ended


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
    assert (found["mode"], found["trouble"]) == ("gpu", "")
    assert document(rows()[:2], 12.5, "gpu")["ok"]
    kept = document(rows()[:2], 12.5, "gpu", trouble="nobody reads")
    assert (kept["ok"], kept["trouble"]) == (False, "nobody reads")
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


def test_what_keeps_the_report_away_fails_a_good_table() -> None:
    assert summary(rows()[:2], 1.0, "cannot write x") == ("SELFTEST: FAIL, cannot write x (exit 1)")


def test_a_run_that_is_not_made_says_what_must_come_of_it() -> None:
    assert list_line(HARMFUL).split()[-3:] == ["by", "content,", "replies"]
    assert list_line(Case(switch="")).endswith("exit 0")


def test_into_a_pipe_go_plain_lines_as_the_runs_end() -> None:
    stream = io.StringIO()
    outlet = outlet_for(stream)
    table = make_table(2, outlet)
    assert isinstance(table, PlainTable)
    for row in rows()[:2]:
        table.row(row)
    table.close()
    outlet.drain(10.0)
    head, first, second = stream.getvalue().splitlines()
    assert head.split()[0] == "fault"
    assert first.startswith("flip_byte:layer=1@2 [handle]")
    assert second.startswith("delay [handle]")

"""How a load reads."""

from __future__ import annotations

from benchserver.scenarios.load.lines import WORDING, describe
from benchserver.scenarios.load.records import ProgressRecord
from tests.benchserver.scenarios.load.made import lookup


def test_only_progress_has_a_line() -> None:
    step = ProgressRecord(at_s=10.2, done=200, failed=0, per_s=19.96, interval_s=5.0)
    line = describe("load", step)
    assert line is not None
    assert line.text == "[load] 10 s: 200 requests, 20.0/s in the last 5 s"
    wrong = ProgressRecord(at_s=10.2, done=200, failed=3, per_s=19.96, interval_s=5.0)
    line = describe("load", wrong)
    assert line is not None
    assert line.text == "[load] 10 s: 200 requests, 3 with something wrong, 20.0/s in the last 5 s"
    assert describe("request=1", lookup()) is None
    assert WORDING.proven == ""

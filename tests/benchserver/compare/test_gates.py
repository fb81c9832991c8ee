"""Gates: how they are written, and when they are broken, held, or cannot tell."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchserver.compare.estimate import Estimate
from benchserver.compare.figures import known_names
from benchserver.compare.gates import Outcome, judge, parse_gate
from benchserver.compare.rows import ALL_CELLS, Row
from benchserver.errors import UsageError
from tests.benchserver.compare.test_rows import row as changed

NAMES = [*known_names(), "server_memory.growth"]


def row(change: float, error: float, cell: str = "", name: str = "retrieve.p99") -> Row:
    """Return a row of a change with the error of its logarithm."""
    found = Estimate(difference=math.log1p(change), error=error, freedom=8, scatter=error, count=5)
    return replace(changed(name, 0.0), found=found, cell=cell)


@pytest.mark.parametrize(
    ("text", "figure", "above", "bound"),
    [
        ("retrieve.p99 > +10%", "retrieve.p99", True, math.log(1.1)),
        ("RETRIEVE.p99.9>10%", "retrieve.p999", True, math.log(1.1)),
        (" requests_per_s < -2.5% ", "requests_per_s", False, math.log(0.975)),
        ("hit_ratio < -0.02", "hit_ratio", False, -0.02),
        ("server_memory.growth > 100000", "server_memory.growth", True, 100_000.0),
    ],
)
def test_gates_as_they_are_written(text: str, figure: str, above: bool, bound: float) -> None:
    gate = parse_gate(text, NAMES)
    assert (gate.figure, gate.above) == (figure, above)
    assert gate.bound == pytest.approx(bound)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "expected a figure, < or >, and a bound"),
        ("retrieve.p99 >= 10%", "expected a figure"),
        ("retrieve.p99 > ten%", "expected a figure"),
        ("retreive.p99 > 10%", "near: retrieve.p99"),
        ("zzz > 10%", "docs/compare.md lists all"),
        ("retrieve.p99 > 10", "expected a percentage"),
        ("retrieve.p99 < -100%", "above -100"),
        ("hit_ratio < -2%", "expected a number without %"),
    ],
)
def test_gates_that_are_none(text: str, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        parse_gate(text, NAMES)


def outcome(text: str, *rows: Row, missing: tuple[str, ...] = ()) -> tuple[Outcome, str]:
    """Return what becomes of a gate, and why."""
    (judged,) = judge([parse_gate(text, NAMES)], rows, missing)
    return judged.outcome, judged.reason


def test_only_an_interval_beyond_the_bound_breaks_a_gate() -> None:
    gate = "retrieve.p99 > +10%"
    assert outcome(gate, row(0.20, 0.01))[0] is Outcome.BROKEN
    found, reason = outcome(gate, row(0.11, 0.02))
    assert (found, reason) == (Outcome.CANNOT_TELL, "+6.0% to +16.2% has the bound in it")
    assert outcome(gate, row(0.09, 0.02))[0] is Outcome.CANNOT_TELL
    assert outcome(gate, row(0.02, 0.01)) == (Outcome.HELD, "-0.3% to +4.4%")
    assert outcome("retrieve.p99 < -10%", row(-0.2, 0.01))[0] is Outcome.BROKEN
    assert outcome("retrieve.p99 < -10%", row(0.2, 0.01))[0] is Outcome.HELD


def test_one_run_or_no_figure_cannot_tell() -> None:
    gate = "retrieve.p99 > +10%"
    one = replace(row(0.5, 0.01), found=None)
    assert outcome(gate, one) == (Outcome.CANNOT_TELL, "one run a side has no interval")
    found, reason = outcome(gate, missing=("retrieve.p99: 60 calls a run, and it needs 100",))
    assert found is Outcome.CANNOT_TELL
    assert "needs 100" in reason
    assert "not in the reports" in outcome(gate)[1]


def test_cells_are_looked_at_one_by_one() -> None:
    gate = "retrieve.p99 > +10%"
    good, bad = row(0.0, 0.01, "rate=1"), row(0.3, 0.01, "rate=2")
    together = row(0.05, 0.01, ALL_CELLS)
    found, reason = outcome(gate, good, bad, together)
    assert found is Outcome.BROKEN
    assert reason.endswith("in cell rate=2")
    assert outcome(gate, good, together)[0] is Outcome.HELD
    unknown = replace(bad, found=None)
    assert outcome(gate, good, unknown)[0] is Outcome.CANNOT_TELL
    assert outcome(gate, unknown, together)[0] is Outcome.HELD, "one run a cell, many cells"


def test_many_gates_are_many_chances_to_be_wrong() -> None:
    rows = [row(0.135, 0.01)]
    gates = [parse_gate("retrieve.p99 > +10%", NAMES)]
    assert judge(gates, rows, ())[0].outcome is Outcome.BROKEN
    more = [parse_gate(f"retrieve.p99 > +10.{n:03}%", NAMES) for n in range(20)]
    many = judge(more, rows, ())
    assert "for 20 looks" in many[0].reason
    assert {judged.outcome for judged in many} == {Outcome.CANNOT_TELL}

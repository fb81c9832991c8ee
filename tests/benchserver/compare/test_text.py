"""The lines of a comparison: within 100 columns, and what they say."""

from __future__ import annotations

import random

from benchserver.compare.comparing import compare
from benchserver.compare.gates import judge, parse_gate
from benchserver.compare.matching import Cell
from benchserver.compare.reading import Side
from benchserver.compare.text import lines
from benchserver.compare.verdict import Told
from tests.benchserver.compare.reports import run
from tests.benchserver.compare.test_comparing import drawn_cell


def told_of(*cells: Cell, gate: str = "retrieve.p50 > +10%") -> list[str]:
    """Return the lines of a comparison of these cells."""
    comparison = compare(cells, (), 0)
    gates = [parse_gate(gate, ["retrieve.p50"])]
    a = tuple(run for cell in cells for run in cell.a)
    b = tuple(run for cell in cells for run in cell.b)
    told = Told(
        sides=(Side("A", a), Side("B", b)),
        remarks=("a remark",),
        allowed=(),
        comparison=comparison,
        gates=tuple(judge(gates, comparison.rows, comparison.left_out)),
    )
    return list(lines(told))


def test_a_table() -> None:
    shown = told_of(drawn_cell(random.Random(3), 8, 0.3, scatter=0.002))
    assert shown[:2] == ["A: 8 runs of server 0.5.6", "B: 8 runs of server 0.5.6"]
    assert shown[2:4] == ["  a remark", ""]
    assert shown[4] == "8 pairs of runs, in the order of time (the sides alternate)"
    assert shown[5].split() == ["figure", "A", "B", "change", "95", "%", "interval", "p", "more"]
    (retrieve,) = [line for line in shown if line.startswith("retrieve.p50")]
    assert "+30." in retrieve
    assert retrieve.endswith(" WORSE")
    (store,) = [line for line in shown if line.startswith("store.p50")]
    assert not store.endswith(("WORSE", "BETTER"))
    assert any(line.startswith("gate retrieve.p50 > +10%: BROKEN: +") for line in shown)
    assert shown[-1].endswith("(exit 1)")
    assert max(map(len, shown[:-1])) <= 100
    assert all(line == line.rstrip() for line in shown)


def test_how_runs_were_made_is_said() -> None:
    alone = told_of(Cell("", (run(),), (run(retrieve_ms=20.0),)))
    assert "1 and 1 run: one run a side has no interval, so nothing can be told" in alone
    (retrieve,) = [line for line in alone if line.startswith("retrieve.p50")]
    assert "+100.0%" in retrieve
    assert retrieve.endswith("CANNOT TELL")
    assert max(map(len, alone[:-1])) <= 100
    a = tuple(run(began_s=float(at)) for at in (1, 2))
    b = tuple(run(began_s=float(at)) for at in (3, 4))
    assert any("one side ran before the other" in line for line in told_of(Cell("", a, b)))
    turns = told_of(drawn_cell(random.Random(1), 3, 0.0))
    assert any("the sides alternate; pairs from 8 a side on" in line for line in turns)


def test_cells_have_their_tables_and_one_together() -> None:
    cells = [Cell(f"rate={n}", (run(), run()), (run(), run())) for n in (1, 2)]
    shown = told_of(*cells)
    assert "cell rate=1: two samples of 2 and 2 runs" in shown
    assert "all cells together: the mean change, each cell with the same weight" in shown


def test_what_is_left_out_is_counted() -> None:
    shown = told_of(Cell("", (run(count=5),), (run(),)))
    assert "not looked at: 3 figures" in shown
    assert any(line.startswith("  retrieve.p999: 5 calls a run") for line in shown)

"""The JSON of a comparison."""

from __future__ import annotations

import json
import random

from benchserver.compare.comparing import compare
from benchserver.compare.document import document
from benchserver.compare.matching import Cell
from benchserver.compare.reading import Side
from benchserver.compare.verdict import Told
from tests.benchserver.compare.reports import run
from tests.benchserver.compare.test_comparing import drawn_cell


def told_of(cell: Cell) -> Told:
    """Return a comparison of one cell."""
    return Told(
        sides=(Side("A", cell.a), Side("B", cell.b)),
        remarks=(),
        allowed=(),
        comparison=compare([cell], ("retrieve.p50",), 5),
        gates=(),
    )


def test_a_document() -> None:
    found = document(told_of(drawn_cell(random.Random(3), 8, 0.3, scatter=0.002)), 5)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["format"], found["seed"], found["exit_code"]) == (1, 5, 0)
    (row,) = found["figures"]
    assert row["finding"] == "worse"
    assert row["low"] < 0.3 < row["high"]
    assert 0 < row["p"] == row["corrected_p"] < 0.001
    (cell,) = found["cells"]
    assert cell["pairs"]
    assert cell["alternating"]
    assert len(found["sides"]["a"]["runs"]) == 8
    assert found["sides"]["b"]["runs"][0]["figures"]["retrieve.p50"] > 12


def test_without_an_interval_there_are_no_numbers() -> None:
    (row,) = document(told_of(Cell("", (run(),), (run(),))), 0)["figures"]
    assert {row[name] for name in ("change", "low", "high", "p", "corrected_p")} == {None}
    assert row["finding"] == "cannot tell"

"""The page of a comparison: of a whole one, of little, and of a hostile one."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.page.comparison import comparison_page


def row(figure: str = "retrieve.p50", cell: str = "", **changes: Any) -> dict[str, Any]:
    """Return a row of a comparison."""
    return {
        "cell": cell,
        "figure": figure,
        "unit": "ms",
        "by_ratio": True,
        "a": 10.0,
        "b": 12.0,
        "change": 0.2,
        "low": 0.15,
        "high": 0.25,
        "corrected_p": 0.001,
        "finding": "worse",
        **changes,
    }


def side(*names: str) -> dict[str, Any]:
    """Return a side of runs."""
    runs = [
        {"file": name, "id": name, "figures": {"retrieve.p50": 10.0 + at}}
        for at, name in enumerate(names)
    ]
    return {"servers": ["0.5.6"], "runs": runs}


def comparison(**changes: Any) -> dict[str, Any]:
    """Return the document of a comparison."""
    cells = [{"cell": "", "pairs": True, "a": ["a1", "a2"], "b": ["b1", "b2"]}]
    return {
        "exit_code": 0,
        "summary": "COMPARE: a summary",
        "remarks": ["a remark"],
        "sides": {"a": side("a1", "a2"), "b": side("b1", "b2")},
        "cells": cells,
        "figures": [row(), row("hit_ratio", unit="", by_ratio=False, finding="cannot tell")],
        "left_out": ["retrieve.p999: too few"],
        "gates": [],
        **changes,
    }


def test_a_whole_page() -> None:
    made = comparison_page(comparison()).decode()
    assert made.count("<figure data-chart=") == 2
    assert "DIFFERENCE SHOWN</strong>" in made
    assert "COMPARE: a summary" in made
    assert "Runs are compared in pairs" in made
    assert "retrieve.p999: too few" in made
    assert "A, server 0.5.6, beside B, server 0.5.6" in made


@pytest.mark.parametrize(
    ("code", "verdict"), [(0, "NO GATE BROKEN"), (1, "GATE BROKEN"), (3, "CANNOT TELL")]
)
def test_gates_decide_what_stands_on_top(code: int, verdict: str) -> None:
    gates = [{"gate": "retrieve.p50 > +10%", "outcome": "o", "reason": "r"}]
    made = comparison_page(comparison(exit_code=code, gates=gates)).decode()
    assert f"<strong>{verdict}</strong>" in made
    assert "retrieve.p50 &gt; +10%" in made


def test_cells_have_parts_of_their_own_and_all_together_comes_first() -> None:
    cells = [{"cell": f"rate={n}", "a": ["a1"], "b": ["b1"]} for n in (1, 2)]
    rows = [row(cell=name) for name in ("rate=1", "rate=2", "all cells together")]
    made = comparison_page(comparison(cells=cells, figures=rows)).decode()
    places = [made.index(f"<h2>{name}") for name in ("All cells", "Cell rate=1", "Cell rate=2")]
    assert places == sorted(places)
    assert made.count('data-chart="runs-1-latencies"') == 2, "the figure and its picture"


@pytest.mark.parametrize(
    "document",
    [{}, {"figures": [1, {}], "cells": 5, "sides": []}, {"exit_code": "x", "gates": [{}, None]}],
)
def test_a_document_that_says_little_is_a_page_too(document: dict[str, Any]) -> None:
    assert b"CANNOT TELL" in comparison_page(document)


def test_no_word_of_a_report_becomes_markup() -> None:
    evil = "<script>alert(1)</script>"
    found = comparison(remarks=[evil], figures=[row(evil, cell=evil)], summary=evil)
    assert evil not in comparison_page(found).decode()

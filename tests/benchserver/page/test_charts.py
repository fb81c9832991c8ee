"""Charts: what is drawn, what is said of it, what stands in the table."""

from __future__ import annotations

from benchserver.page import charts
from benchserver.page.overtime import over_time
from tests.benchserver.page.documents import LATENCY, run_document


def test_percentiles_of_two_sides_stand_side_by_side() -> None:
    slower = {"STORE": {**LATENCY, "p99_ms": 99.0}}
    chart = charts.percentiles("p", [("before", {"STORE": LATENCY}), ("after", slower)])
    assert chart is not None
    assert "The slowest at p99 is STORE, after: 99.0 ms." in chart.told
    assert chart.drawing.count('id="p-mark-') == 8
    assert chart.figures.count("<tr>") == 3
    assert charts.percentiles("p", [("", {})]) is None
    assert "math" not in chart.drawing
    assert ">5<" in chart.drawing.replace(" ", "").replace("\n", "")
    assert charts.percentiles("p", [("", {"STORE": {"count": 1.0}})]) is None


def test_a_heat_map_says_between_what_its_slots_lie() -> None:
    seen = over_time(run_document())
    assert seen is not None
    chart = charts.heat("h", "RETRIEVE", seen)
    assert chart.title == "RETRIEVE over time"
    assert "40 in 4 slots of 1.00 s; the median of a slot lies between 2.00 and 4.00" in chart.told
    assert "data:image/png" in chart.drawing
    assert '<figure data-chart="h"><h3>RETRIEVE over time</h3>' in chart.markup()


def test_lines_and_bars_have_their_values_in_the_table() -> None:
    points = [(float(at), float(at)) for at in range(100)]
    chart = charts.lines("l", "Lines", "MB", [("a", points), ("b", [])], "told")
    assert chart is not None
    assert 2 < chart.figures.count("<tr>") <= 26
    assert charts.lines("l", "Lines", "MB", [("a", [])], "told") is None
    chart = charts.bars("b", "Bars", "%", [("x", 50.0), ("y", 75.0)], "told", 100.0)
    assert chart is not None
    assert ">75.0<" in chart.figures
    assert charts.bars("b", "Bars", "%", [], "told", 100.0) is None


def test_names_of_a_peer_are_drawn_whatever_they_are() -> None:
    for name in ("\0\u202e</svg>", "字" * 400, "$\\frac{"):
        chart = charts.percentiles("p", [("", {name: LATENCY})])
        assert chart is not None
        assert "</svg>" not in chart.drawing[: -len("</svg>\n")]
        assert "\0" not in chart.drawing
        assert "字" * 15 not in chart.drawing.partition("</desc>")[2]

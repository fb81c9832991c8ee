"""Charts of two sides: every row is drawn, and said in words and in a table."""

from __future__ import annotations

from benchserver.page.sides import MOST_ROWS, Change, changes, runs


def change(label: str, value: float, finding: str = "no difference shown") -> Change:
    """Return a change with an interval of 2 % around it."""
    return Change(label=label, change=value, low=value - 0.02, high=value + 0.02, finding=finding)


def test_changes() -> None:
    rows = [change("retrieve.p50", 0.15, "worse"), change("store.p50", -0.01)]
    chart = changes("c", "Changes", rows)
    assert chart is not None
    made = chart.markup()
    assert made.count('id="c-mark-') == 2
    assert "1 of 2 figures show a difference: retrieve.p50 worse by +15.0%." in made
    assert "+13.0% to +17.0%" in made
    none = changes("c", "Changes", rows[1:])
    assert none is not None
    assert "none of 1 figures shows a difference" in none.told
    assert changes("c", "Changes", []) is None


def test_every_run_of_both_sides() -> None:
    rows = [("retrieve.p50", [1.0, 1.5], [2.0, 2.5, 9.0]), ("empty", [], [1.0])]
    chart = runs("r", "Every run", "ms", rows)
    assert chart is not None
    made = chart.markup()
    assert made.count('id="r-mark-') == 2, "a figure without runs has no row"
    assert "2 of A, 3 of B." in made
    assert "2.00 to 9.00" in made
    assert runs("r", "Every run", "ms", rows[1:]) is None


def test_zeros_and_many_rows_are_drawn_too() -> None:
    assert runs("r", "t", "/h", [("growth", [0.0, -1.0], [2.0])]) is not None
    many = changes("c", "t", [change(f"figure {n}", 5.0) for n in range(MOST_ROWS + 5)])
    assert many is not None
    assert many.drawing.count('id="c-mark-') == MOST_ROWS
    assert many.figures.count("<tr>") == MOST_ROWS + 6, "the table has them all"

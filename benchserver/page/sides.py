"""Charts of two sides: the changes of figures with their intervals, and every run of both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from benchserver.page.charts import Chart
from benchserver.page.markup import number, table
from benchserver.page.svg import COLOURS, INK, SETTINGS, inline, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 40
"""Of one chart; the rest stands in the table alone."""

_MOST_SHOWN = 3.0
"""A change beyond +300 % ends at the edge: one wild interval must not make the others a dot."""

_FINDINGS = {"worse": (COLOURS[4], "s"), "better": (COLOURS[2], "D"), "changed": (COLOURS[3], "^")}
_NOTHING = (COLOURS[5], "o")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of a figure, a share of A, with its interval."""

    label: str
    change: float
    low: float
    high: float
    finding: str


@contextmanager
def _drawing(height_in: float) -> Iterator[tuple[Figure, Axes]]:
    import matplotlib

    with matplotlib.rc_context(cast(Any, SETTINGS)):
        figure = new_figure(height_in)
        yield figure, figure.add_subplot()


def changes(key: str, title: str, rows: Sequence[Change]) -> Chart | None:
    """Draw how much each figure has changed from A to B, with what it may be."""
    if not rows:
        return None
    shown = rows[:MOST_ROWS]
    with _drawing(0.95 + 0.2 * len(shown)) as (figure, axes):
        axes.axvline(0, color=INK, linewidth=1.0)
        for place, row in enumerate(shown):
            colour, marker = _FINDINGS.get(row.finding, _NOTHING)
            low, middle, high = (
                100 * min(value, _MOST_SHOWN) for value in (row.low, row.change, row.high)
            )
            axes.plot([low, high], [place, place], color=colour, linewidth=2.0, alpha=0.6)
            axes.plot([middle], [place], marker, color=colour, markersize=4.5,
                      gid=f"mark-{place}")  # fmt: skip
        axes.set_yticks(range(len(shown)), [row.label for row in shown])
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_xlabel(
            "% from A to B\nsquare: worse, diamond: better, circle: no difference shown"
        )
        axes.grid(axis="y", visible=False)
        told = _told(rows)
        drawing = inline(figure, key, title, told)
    body = [
        (row.label, f"{row.change:+.1%}", f"{row.low:+.1%} to {row.high:+.1%}", row.finding)
        for row in rows
    ]
    head = ("figure", "change", "95 % interval", "finding")
    return Chart(key=key, title=title, told=told, drawing=drawing, figures=table(title, head, body))


def _told(rows: Sequence[Change]) -> str:
    shown = [row for row in rows if row.finding in _FINDINGS]
    if not shown:
        return f"B beside A: none of {len(rows)} figures shows a difference."
    named = "; ".join(f"{row.label} {row.finding} by {row.change:+.1%}" for row in shown[:3])
    return f"B beside A: {len(shown)} of {len(rows)} figures show a difference: {named}."


Runs = Sequence[tuple[str, Sequence[float], Sequence[float]]]
"""A figure, and its value in each run of A and of B."""


def runs(key: str, title: str, unit: str, rows: Runs) -> Chart | None:
    """Draw each run of both sides: how they scatter, and how far the sides lie apart."""
    rows = [(label, a, b) for label, a, b in rows if a and b]
    if not rows:
        return None
    shown = rows[:MOST_ROWS]
    with _drawing(0.9 + 0.34 * len(shown)) as (figure, axes):
        for place, (_, a, b) in enumerate(shown):
            for side, (values, marker) in enumerate(((a, "o"), (b, "s"))):
                axes.plot(
                    values, [place - 0.16 + 0.32 * side] * len(values), marker,
                    color=COLOURS[side], markersize=4, alpha=0.7, linestyle="none",
                    label=f"{'AB'[side]}, a mark a run" if place == 0 else None,
                    gid=f"mark-{place}-{'ab'[side]}",
                )  # fmt: skip
        if all(value > 0 for _, a, b in shown for value in (*a, *b)):
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.xaxis.set_minor_formatter(lambda _value, _place: "")
        axes.set_yticks(range(len(shown)), [label for label, _, _ in shown])
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_xlabel(unit)
        axes.grid(axis="y", visible=False)
        figure.legend(loc="outside upper left", ncols=2)
        told = f"Every run of both sides: {len(shown[0][1])} of A, {len(shown[0][2])} of B."
        drawing = inline(figure, key, title, told)
    body = [(label, _span(a), _span(b)) for label, a, b in rows]
    return Chart(
        key=key, title=title, told=told, drawing=drawing,
        figures=table(f"{title}, {unit}", ("figure", "A, least to most", "B, least to most"), body),
    )  # fmt: skip


def _span(values: Sequence[float]) -> str:
    return f"{number(min(values))} to {number(max(values))}"

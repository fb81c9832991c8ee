"""The charts of a page, each with a sentence that says what it shows and a table of its figures.

Series are told apart by marker and dash as well as by colour.  Alone with `svg` to draw.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING, Any, cast

from benchserver.page.markup import Html, element, folded, joined, number, table, text
from benchserver.page.markup import label as short
from benchserver.page.overtime import OverTime
from benchserver.page.svg import COLOURS, SETTINGS, SOFT, inline, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DASHES = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3)))
_MARKERS = ("o", "s", "^", "D", "v", "P")
_HEAT = (0.18, 0.51, 0.97)
"""A blue that stands out from white and from black; how many there are is how opaque it is."""

_MOST_ROWS = 24
"""Of a table beside a chart of slots: neighbours are put together."""

Latencies = Mapping[str, Mapping[str, float]]
"""Of each series: count and percentiles, in ms, as a report has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One picture, what it is called, what it shows in a sentence, its figures as a table."""

    key: str
    title: str
    told: str
    drawing: Html
    figures: Html

    def markup(self) -> Html:
        """Return it as a part of a page."""
        parts = (
            element("h3", text(self.title)),
            element("p", text(self.told)),
            self.drawing,
            folded("The figures as a table", self.figures),
        )
        return element("figure", joined(parts), data_chart=self.key)


@contextmanager
def _drawing(height_in: float = 2.5, *, measured: bool = True) -> Iterator[tuple[Figure, Axes]]:
    import matplotlib

    with matplotlib.rc_context(cast(Any, SETTINGS)), warnings.catch_warnings():
        # Of its own fonts, by which it measures; the reader's have more letters.
        warnings.filterwarnings("ignore", message="Glyph")
        figure = new_figure(height_in, measured=measured)
        yield figure, figure.add_subplot()


def percentiles(key: str, sides: Sequence[tuple[str, Latencies]]) -> Chart | None:
    """Draw p50, p90, p99 and p99.9 of each operation on a logarithmic scale, of one run or more."""
    names = list(dict.fromkeys(name for _, latencies in sides for name in latencies))
    shown = [(name, label, latencies[name]) for name in names for label, latencies in sides
             if name in latencies and _positive(latencies[name])]  # fmt: skip
    if not shown:
        return None
    columns = ("p50_ms", "p90_ms", "p99_ms", "p999_ms")
    with _drawing(0.7 + 0.27 * len(shown)) as (figure, axes):
        for place, (_, label, found) in enumerate(shown):
            colour = COLOURS[[side for side, _ in sides].index(label) % len(COLOURS)]
            values = [found[column] for column in columns]
            axes.plot(values, [place] * 4, color=colour, linewidth=2.4, alpha=0.35)
            for value, marker, column in zip(values, "osD|", columns, strict=True):
                axes.plot([value], [place], marker, color=colour, markersize=4.5,
                          markeredgewidth=1.4, gid=f"mark-{place}-{column}")  # fmt: skip
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        # Between powers of ten matplotlib labels some steps, in a notation that is not drawn here.
        axes.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if _is_told(value) else "")
        axes.set_yticks(
            range(len(shown)), [short(_side(name, label, sides)) for name, label, _ in shown]
        )
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_xlabel("ms; circle p50, square p90, diamond p99, bar p99.9")
        axes.grid(axis="y", visible=False)
        worst = max(shown, key=lambda row: row[2]["p99_ms"])
        told = (
            "Half of the calls took no longer than the circle, 99 of 100 no longer than the "
            f"diamond. The slowest at p99 is {_side(worst[0], worst[1], sides)}: "
            f"{number(worst[2]['p99_ms'])} ms."
        )
        drawing = inline(figure, key, "Latency by operation", told)
    return Chart(
        key=key, title="Latency by operation", told=told, drawing=drawing,
        figures=latency_table(sides),
    )  # fmt: skip


def _is_told(value: float) -> bool:
    """Tell whether a step between powers of ten has a label: 2 and 5 have."""
    return f"{value:e}"[0] in "25"


def _side(name: str, label: str, sides: Sequence[tuple[str, Latencies]]) -> str:
    return f"{name}, {label}" if len(sides) > 1 else name


def _positive(found: Mapping[str, float]) -> bool:
    return all(found.get(name, 0) > 0 for name in ("p50_ms", "p90_ms", "p99_ms", "p999_ms"))


def latency_table(sides: Sequence[tuple[str, Latencies]]) -> Html:
    """Return all percentiles of all series as a table."""
    columns = ("count", "mean_ms", "min_ms", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")
    heads = ("series", "count", "mean", "min", "p50", "p90", "p99", "p99.9", "max")
    rows = [
        [_side(name, label, sides), *(_count_or(found, column) for column in columns)]
        for label, latencies in sides
        for name, found in latencies.items()
    ]
    return table("Latencies in ms", heads, rows)


def _count_or(found: Mapping[str, float], column: str) -> object | None:
    value = found.get(column)
    return int(value) if column == "count" and value is not None else value


def heat(key: str, name: str, seen: OverTime) -> Chart:
    """Draw a series over time: how many took how long, with p50 and p99 of each slot."""
    cells = seen.cells[name]
    low, high = min(row for _, row in cells), max(row for _, row in cells)
    p50, p99 = seen.percentiles(name, 50), seen.percentiles(name, 99)
    bounds = seen.bounds_ms[low : high + 2]
    with _drawing(measured=False) as (figure, axes):
        axes.imshow(
            _pixels(cells, seen.slots, low, high),
            extent=(0, seen.slots * seen.slot_s, 0, high - low + 1),
            aspect="auto", origin="lower", interpolation="nearest",
        )  # fmt: skip
        for found, colour, dash, label in ((p50, 1, "-", "p50"), (p99, 3, "--", "p99")):
            axes.plot(
                [(slot + 0.5) * seen.slot_s for slot in found],
                [_height(value, bounds) for value in found.values()],
                linestyle=dash, color=COLOURS[colour], label=label, gid=f"mark-{label}",
            )  # fmt: skip
        _log_ticks(axes, bounds)
        axes.grid(visible=False)
        axes.set_xlim(0, seen.slots * seen.slot_s)
        axes.set_xlabel("seconds since the begin")
        axes.set_ylabel("ms")
        figure.legend(loc="upper left", ncols=2)
        total = sum(cells.values())
        title = f"{name} over time"
        told = (
            f"{total} in {seen.slots} slots of {number(seen.slot_s)} s; the median of a slot lies "
            f"between {number(min(p50.values()))} and {number(max(p50.values()))} ms, its p99 "
            f"between {number(min(p99.values()))} and {number(max(p99.values()))} ms. The stronger "
            "the colour of a cell, the more of them."
        )
        drawing = inline(figure, key, title, told)
    counts = seen.counts(name)
    return Chart(
        key=key, title=title, told=told, drawing=drawing,
        figures=_heat_table(title, seen, counts, p50, p99),
    )  # fmt: skip


def _heat_table(
    title: str,
    seen: OverTime,
    counts: Mapping[int, int],
    p50: Mapping[int, float],
    p99: Mapping[int, float],
) -> Html:
    rows = []
    for slots in _groups(seen.slots):
        within = [slot for slot in slots if slot in counts]
        rows.append(
            [
                _span(slots, seen),
                sum(counts[slot] for slot in within),
                max((p50[slot] for slot in within), default=None),
                max((p99[slot] for slot in within), default=None),
            ]
        )
    return table(title, ("seconds", "count", "highest p50 [ms]", "highest p99 [ms]"), rows)


def _groups(slots: int) -> list[range]:
    step = max(1, -(-slots // _MOST_ROWS))
    return [range(first, min(first + step, slots)) for first in range(0, slots, step)]


def _span(slots: range, seen: OverTime) -> str:
    return f"{number(slots.start * seen.slot_s)} to {number(slots.stop * seen.slot_s)}"


def _pixels(cells: Mapping[tuple[int, int], int], slots: int, low: int, high: int) -> Any:
    """Return a picture with a pixel a cell; the root of the counts, so that few are seen too."""
    import numpy as np

    pixels = np.zeros((high - low + 1, slots, 4))
    pixels[..., :3] = _HEAT
    most = max(cells.values())
    for (slot, row), count in cells.items():
        pixels[row - low, slot, 3] = 0.15 + 0.75 * (count / most) ** 0.5
    return pixels


def _height(value_ms: float, bounds: Sequence[float]) -> float:
    """Return where a latency lies on an axis on which every row is equally high."""
    for row, (lower, upper) in enumerate(pairwise(bounds)):
        if value_ms <= upper:
            return row + log(max(value_ms, lower) / lower) / log(upper / lower)
    return len(bounds) - 1.0


def _log_ticks(axes: Axes, bounds: Sequence[float]) -> None:
    decades = bounds[-1] / bounds[0]
    steps = (
        (1.0,) if decades > 2000 else (1.0, 3.0) if decades > 20 else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
    )
    ticks = [step * 10.0**power for power in range(-4, 8) for step in steps]
    inside = [tick for tick in ticks if bounds[0] <= tick <= bounds[-1]]
    axes.set_yticks([_height(tick, bounds) for tick in inside], [f"{tick:g}" for tick in inside])


Lines = Sequence[tuple[str, Sequence[tuple[float, float]]]]
"""Series over time: a label, and points of seconds and a value."""


def lines(
    key: str, title: str, unit: str, series: Lines, told: str, heads: Sequence[str] = ()
) -> Chart | None:
    """Draw series over time; of more than six the rest stands in the table alone."""
    series = [(label, points) for label, points in series if points]
    if not series:
        return None
    with _drawing(measured=False) as (figure, axes):
        for place, (label, points) in enumerate(series[: len(COLOURS)]):
            axes.plot(
                [at for at, _ in points], [value for _, value in points],
                color=COLOURS[place], linestyle=_DASHES[place], label=short(label),
                marker=_MARKERS[place], markersize=3, markevery=max(1, len(points) // 8),
                gid=f"mark-{place}",
            )  # fmt: skip
        axes.set_xlabel("seconds since the begin")
        axes.set_ylabel(unit)
        most = max(value for _, points in series for _, value in points)
        axes.set_ylim(0, 1.08 * most if most > 0 else 1)
        if len(series) > 1:
            figure.legend(loc="upper left", ncols=2)
        drawing = inline(figure, key, title, told)
    rows = [row for label, points in series for row in _line_rows(label, points)]
    head = heads or ("series", "from [s]", "to [s]", "mean", "highest")
    return Chart(
        key=key, title=title, told=told, drawing=drawing,
        figures=table(f"{title}, {unit}", head, rows),
    )  # fmt: skip


def _line_rows(label: str, points: Sequence[tuple[float, float]]) -> Iterable[Sequence[object]]:
    for group in _groups(len(points)):
        values = [points[place][1] for place in group]
        span = (points[group.start][0], points[group.stop - 1][0])
        yield (label, *span, sum(values) / len(values), max(values))


def bars(
    key: str, title: str, unit: str, values: Sequence[tuple[str, float]], told: str, most: float
) -> Chart | None:
    """Draw one value for each label, side by side on a scale from 0 to `most`."""
    if not values:
        return None
    with _drawing(0.75 + 0.3 * len(values)) as (figure, axes):
        for place, (_, value) in enumerate(values):
            axes.barh(place, value, height=0.62, color=COLOURS[0 if place == 0 else 5],
                      gid=f"mark-{place}")  # fmt: skip
            axes.annotate(number(value), (value, place), xytext=(4, 0), va="center",
                          textcoords="offset points", color=SOFT)  # fmt: skip
        axes.set_yticks(range(len(values)), [short(label) for label, _ in values])
        axes.set_ylim(len(values) - 0.4, -0.6)
        axes.set_xlim(0, most * 1.12)
        axes.set_xlabel(unit)
        axes.grid(axis="y", visible=False)
        drawing = inline(figure, key, title, told)
    return Chart(
        key=key, title=title, told=told, drawing=drawing,
        figures=table(title, ("what", unit), values),
    )  # fmt: skip

"""Two sides of runs to rows: what is left out, estimates, and what is shown by them.  Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from benchserver.compare.estimate import MIN_PAIRS, ROUNDING, Sides, estimate, pooled, typical
from benchserver.compare.figures import Figure, figure_called
from benchserver.compare.many import holm
from benchserver.compare.matching import Cell
from benchserver.compare.pairing import Order, in_order
from benchserver.compare.power import runs_for
from benchserver.compare.reading import Run
from benchserver.compare.rows import ALL_CELLS, Row, five_percent

_REASONS_SHOWN = 1


@dataclass(frozen=True, slots=True)
class Group:
    """A cell with its runs in the order of time."""

    cell: Cell
    order: Order

    @property
    def pairs(self) -> bool:
        """Tell whether it is compared by pairs."""
        return self.order.paired and len(self.order.a) >= MIN_PAIRS

    @property
    def a(self) -> tuple[Run, ...]:
        """Return the runs of A."""
        return tuple(self.cell.a[place] for place in self.order.a)

    @property
    def b(self) -> tuple[Run, ...]:
        """Return the runs of B."""
        return tuple(self.cell.b[place] for place in self.order.b)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What has come of it; `left_out`: figures that could not be looked at, and why, as lines."""

    groups: tuple[Group, ...]
    rows: tuple[Row, ...]
    left_out: tuple[str, ...]


def compare(cells: Sequence[Cell], wanted: Collection[str], seed: int) -> Comparison:
    """Compare all cells; `wanted`: patterns of the figures to look at, all without one."""
    groups = tuple(
        Group(cell, in_order([run.began_s for run in cell.a], [run.began_s for run in cell.b]))
        for cell in cells
    )
    left_out: list[str] = []
    rows: list[Row] = []
    for name in _names(cells, wanted):
        rows += _rows(name, groups, left_out, seed)
    rows.sort(key=lambda row: _place(row, groups))
    return Comparison(groups, tuple(_corrected(rows, groups)), tuple(left_out))


def _place(row: Row, groups: Sequence[Group]) -> int:
    """Rows stand cell by cell; all cells together come last."""
    labels = [group.cell.label for group in groups]
    return len(labels) if row.cell == ALL_CELLS else labels.index(row.cell)


def _names(cells: Iterable[Cell], wanted: Collection[str]) -> list[str]:
    """Return the figures to look at, in the order of reports."""
    runs = [run for cell in cells for run in (*cell.a, *cell.b)]
    names = dict.fromkeys(name for run in runs for name in run.figures.values)
    names |= dict.fromkeys(name for run in runs for name in run.figures.left_out)
    return [
        name
        for name in names
        if not wanted or any(fnmatchcase(name, pattern) for pattern in wanted)
    ]


def _rows(name: str, groups: Sequence[Group], left_out: list[str], seed: int) -> Iterator[Row]:
    """Yield the rows of a figure: of each cell, and of all together where there are several."""
    figure, sides = figure_called(name), list[Sides]()
    for group in groups:
        if reason := _why_not(name, group):
            where = f" (cell {group.cell.label})" if group.cell.label else ""
            left_out.append(f"{name}: {reason}{where}")
            continue
        a = tuple(run.figures.values[name] for run in group.a)
        b = tuple(run.figures.values[name] for run in group.b)
        sides.append(_sides(figure, a, b, group.order.paired))
        yield Row(
            figure=figure,
            cell=group.cell.label,
            a=_typical(figure, sides[-1].a),
            b=_typical(figure, sides[-1].b),
            found=estimate(sides[-1], f"{seed}/{name}/{group.cell.label}"),
            corrected_p=None,
            more_runs=None,
        )
    if len(groups) > 1 and len(sides) == len(groups):
        found = pooled(sides, f"{seed}/{name}/{ALL_CELLS}")
        yield Row(
            figure=figure,
            cell=ALL_CELLS,
            a=None,
            b=None,
            found=found,
            corrected_p=None,
            more_runs=None,
        )


def _why_not(name: str, group: Group) -> str:
    """Return why a figure of a cell cannot be looked at, or ""."""
    for run in (*group.a, *group.b):
        if reason := run.figures.left_out.get(name):
            return f"{reason}, in {run.name}"
        if name not in run.figures.values:
            return f"it is not in {run.name}"
    return ""


def _sides(figure: Figure, a: tuple[float, ...], b: tuple[float, ...], paired: bool) -> Sides:
    if figure.by_ratio:
        logs_a, logs_b = tuple(map(math.log, a)), tuple(map(math.log, b))
        return Sides(logs_a, logs_b, paired=paired, least=ROUNDING)
    largest = max(map(abs, (*a, *b)))
    return Sides(a, b, paired=paired, least=ROUNDING * largest or ROUNDING)


def _typical(figure: Figure, values: Sequence[float]) -> float:
    mean = typical(values)
    return math.exp(mean) if figure.by_ratio else mean


def _corrected(rows: Sequence[Row], groups: Sequence[Group]) -> Iterator[Row]:
    """Yield the rows, corrected for all that were looked at, with what more runs would show."""
    found = [row.found.p_value() for row in rows if row.found is not None]
    corrected = iter(holm(found))
    pairs = {group.cell.label: group.order.paired for group in groups}
    for row in rows:
        if row.found is None:
            yield row
            continue
        size = five_percent(row.figure, row.a)
        paired = pairs.get(row.cell, False)
        needed = None
        if row.cell != ALL_CELLS:
            needed = runs_for(row.found, size, paired=paired, looks=len(found))
        more = None if needed is None else max(0, needed - row.found.count)
        yield replace(row, corrected_p=next(corrected), more_runs=more)

"""Gates: `retrieve.p99 > +10%` fails a comparison whose interval lies beyond the bound.  Pure.

A gate that looks at several cells, and several gates, are several chances to be wrong: a gate is
broken only if the interval lies beyond its bound at a level corrected for all of them.  It is held
if the interval of every cell lies on its good side.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from benchserver.compare.estimate import LEVEL
from benchserver.compare.figures import figure_called, near
from benchserver.compare.rows import ALL_CELLS, Row, change_text
from benchserver.errors import UsageError, one_line

_FORM = re.compile(
    r"\s*([\w.]+)\s*([<>])\s*([+-]?[0-9]{1,15}(?:\.[0-9]{1,9})?)\s*(%?)\s*", re.ASCII
)
EXAMPLE = "'retrieve.p99 > +10%'"


class Outcome(Enum):
    """What has become of a gate."""

    HELD = "held"
    CANNOT_TELL = "cannot tell"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A bound on the change of a figure from A to B; `bound`: as estimates have it."""

    text: str
    figure: str
    above: bool
    bound: float


@dataclass(frozen=True, slots=True)
class Judged:
    """A gate, what has become of it, and why."""

    gate: Gate
    outcome: Outcome
    reason: str


def parse_gate(text: str, names: Collection[str]) -> Gate:
    """Read a gate; UsageError for what is none, or names no figure."""
    shown = f"--fail-if {one_line(text, 80)!r}"
    found = _FORM.fullmatch(text.replace("p99.9", "p999"))
    if found is None:
        raise UsageError(f"{shown}: expected a figure, < or >, and a bound, such as {EXAMPLE}")
    name, relation, number, percent = found[1].lower(), found[2], float(found[3]), found[4]
    if name not in names:
        meant = near(name, names)
        hint = f"; near: {', '.join(meant)}" if meant else "; docs/compare.md lists all"
        raise UsageError(f"{shown}: no figure is called {one_line(name, 60)}{hint}")
    by_ratio = figure_called(name).by_ratio
    if by_ratio and (not percent or number <= -100):
        raise UsageError(f"{shown}: {name} is compared by its ratio: expected a percentage above "
                         f"-100, such as {EXAMPLE}")  # fmt: skip
    if not by_ratio and percent:
        raise UsageError(f"{shown}: {name} may be 0, so it is compared by its difference: expected "
                         "a number without %, as the figure has it")  # fmt: skip
    bound = math.log1p(number / 100) if by_ratio else number
    return Gate(text=" ".join(text.split()), figure=name, above=relation == ">", bound=bound)


def judge(gates: Sequence[Gate], rows: Sequence[Row], missing: Iterable[str]) -> list[Judged]:
    """Return what has become of each gate; `missing`: why figures are not there, as lines."""
    reasons = list(missing)
    looked = {gate: _rows_of(gate, rows) for gate in gates}
    looks = max(1, sum(map(len, looked.values())))
    return [_judged(gate, looked[gate], looks, reasons) for gate in gates]


def _rows_of(gate: Gate, rows: Sequence[Row]) -> list[Row]:
    """Return the rows that a gate looks at: all cells, or what all of them say together."""
    ours = [row for row in rows if row.figure.name == gate.figure]
    cells = [row for row in ours if row.cell != ALL_CELLS]
    if any(row.found is not None for row in cells):
        return cells
    return [row for row in ours if row.cell == ALL_CELLS and row.found is not None] or cells


def _judged(gate: Gate, rows: Sequence[Row], looks: int, missing: Sequence[str]) -> Judged:
    open_reasons: list[str] = []
    for row in rows:
        where = f" in cell {row.cell}" if row.cell else ""
        if row.found is None:
            open_reasons.append(f"one run a side has no interval{where}")
            continue
        level = 1 - (1 - LEVEL) / looks
        low, high = row.found.interval(level)
        if low > gate.bound if gate.above else high < gate.bound:
            return Judged(gate, Outcome.BROKEN, f"{_range(row, low, high)}{where}")
        wide = _range(row, low, high)
        low, high = row.found.interval()
        if low > gate.bound if gate.above else high < gate.bound:
            open_reasons.append(f"{wide}{where} has the bound in it, for {looks} looks")
        elif not (high <= gate.bound if gate.above else low >= gate.bound):
            open_reasons.append(f"{_range(row, low, high)}{where} has the bound in it")
    if not rows:
        named = [text for text in missing if text.startswith(f"{gate.figure}:")]
        open_reasons = named or [f"{gate.figure} is not in the reports of both sides"]
    if open_reasons:
        return Judged(gate, Outcome.CANNOT_TELL, "; ".join(open_reasons))
    widest = max(rows, key=lambda row: _end(row, gate))
    low, high = widest.found.interval() if widest.found is not None else (0.0, 0.0)
    return Judged(gate, Outcome.HELD, _range(widest, low, high))


def _end(row: Row, gate: Gate) -> float:
    low, high = row.found.interval() if row.found is not None else (0.0, 0.0)
    return high if gate.above else -low


def _range(row: Row, low: float, high: float) -> str:
    return f"{change_text(row.figure, low)} to {change_text(row.figure, high)}"

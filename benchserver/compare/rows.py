"""One figure of one cell, compared: what a row of the table says.  Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from benchserver.compare.estimate import LEVEL, Estimate
from benchserver.compare.figures import HIGHER, NEITHER, Figure

ALL_CELLS = "all cells together"

_SHOWN_SHARE = 0.05
"""The difference of which a row says how many more runs would show it."""


class Finding(Enum):
    """What a row shows."""

    WORSE = "worse"
    BETTER = "better"
    CHANGED = "changed"
    NONE = "no difference shown"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A figure of a cell.

    `a`, `b`: the typical run of each side (the geometric mean, of a figure compared by its ratio),
    None for all cells together.  `corrected_p`: for all figures that were looked at.  `more_runs`:
    how many more a side would show a difference of 5 %, None: nobody can say, or too many.
    """

    figure: Figure
    cell: str
    a: float | None
    b: float | None
    found: Estimate | None
    corrected_p: float | None
    more_runs: int | None

    @property
    def finding(self) -> Finding:
        """Return what is shown, after the correction."""
        if self.found is None or self.corrected_p is None:
            return Finding.CANNOT_TELL
        if self.corrected_p > 1 - LEVEL:
            return Finding.NONE
        if self.figure.better == NEITHER:
            return Finding.CHANGED
        is_better = (self.found.difference > 0) == (self.figure.better == HIGHER)
        return Finding.BETTER if is_better else Finding.WORSE


def five_percent(figure: Figure, a: float | None) -> float:
    """Return how large a difference of 5 % is, as estimates have it; 0: there is none."""
    if figure.by_ratio:
        return math.log1p(_SHOWN_SHARE)
    return abs(a or 0.0) * _SHOWN_SHARE


def change_text(figure: Figure, difference: float) -> str:
    """Return a change as it is shown: in per cent, or in the figure's own unit."""
    if figure.by_ratio:
        return f"{math.expm1(min(difference, 700.0)):+.1%}"
    return f"{difference:+.3g}"


def change_of(figure: Figure, difference: float) -> float:
    """Return a change as JSON has it: a share of A, or a difference."""
    return math.expm1(min(difference, 700.0)) if figure.by_ratio else difference

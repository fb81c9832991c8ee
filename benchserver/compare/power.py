"""How many runs a side would show a difference: from the scatter that was seen.  Pure."""

from __future__ import annotations

import math

from benchserver.compare.estimate import LEVEL, MIN_PAIRS, Estimate, kept_freedom
from benchserver.compare.student import quantile

POWER = 0.8
"""The chance of showing the difference, if it is there, with so many runs."""

MOST_RUNS = 10_000
"""Nobody makes more."""


def runs_for(found: Estimate, difference: float, *, paired: bool, looks: int) -> int | None:
    """Return how many runs a side would show a difference of this size; None: above MOST_RUNS.

    `looks`: how many figures are looked at, for which the first one shown is corrected.
    """
    tail = (1 - LEVEL) / 2 / max(1, looks)
    stretch = max(found.stretch_low, found.stretch_high)

    def shows(runs: int) -> bool:
        freedom = kept_freedom(runs) * (1 if paired and runs >= MIN_PAIRS else 2)
        reach = stretch * quantile(tail, freedom) + quantile(1 - POWER, freedom)
        return reach * found.scatter / math.sqrt(runs) <= difference

    if difference <= 0 or not shows(MOST_RUNS):
        return None
    low, high = 1, MOST_RUNS
    while high - low > 1:
        middle = (low + high) // 2
        if shows(middle):
            high = middle
        else:
            low = middle
    return high

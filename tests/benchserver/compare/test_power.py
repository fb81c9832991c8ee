"""How many runs would show a difference, beside the textbook and beside drawn runs."""

from __future__ import annotations

import math
import random

from benchserver.compare.estimate import Estimate, Sides, estimate
from benchserver.compare.power import MOST_RUNS, POWER, runs_for


def seen(scatter: float) -> Estimate:
    """Return an estimate of five runs a side."""
    error = scatter / math.sqrt(5)
    return Estimate(difference=0.0, error=error, freedom=8, scatter=scatter, count=5)


def test_the_textbook() -> None:
    # (1.96 + 0.84)^2 x 0.1^2 / 0.0488^2 = 33 with a known scatter; an estimated one needs more.
    few, many = (
        runs_for(seen(scatter), math.log1p(0.05), paired=True, looks=1) or 0
        for scatter in (0.1, 0.2)
    )
    assert 33 <= few <= 38
    assert 4 * 33 - 4 < many < 4 * 38


def test_more_looks_need_more_runs_and_some_differences_are_out_of_reach() -> None:
    one, many = (runs_for(seen(0.1), 0.05, paired=False, looks=looks) for looks in (1, 40))
    assert one is not None
    assert many is not None
    assert one < many < 4 * one
    assert runs_for(seen(50.0), 0.05, paired=False, looks=1) is None
    assert runs_for(seen(0.1), 0.0, paired=False, looks=1) is None
    assert (runs_for(seen(1e-9), 0.05, paired=False, looks=1) or MOST_RUNS) <= 3


def test_so_many_runs_show_it_as_often_as_is_promised() -> None:
    drawn, shown, tries = random.Random(4), 0, 120
    runs = runs_for(seen(0.1 * math.sqrt(2)), 0.2, paired=False, looks=1)
    assert runs is not None
    for number in range(tries):
        a = tuple(drawn.gauss(0.0, 0.1) for _ in range(runs))
        b = tuple(drawn.gauss(0.2, 0.1) for _ in range(runs))
        found = estimate(Sides(a, b, paired=False, least=1e-9), f"power/{number}")
        assert found is not None
        shown += found.p_value() <= 0.05
    assert abs(shown / tries - POWER) < 0.12

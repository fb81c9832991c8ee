"""Differences and their intervals: by hand, by a planted truth, and how often they hold it."""

from __future__ import annotations

import math
import random

import pytest

from benchserver.compare.estimate import MIN_PAIRS, Estimate, Sides, estimate, pooled
from benchserver.compare.student import quantile


def sides(a: tuple[float, ...], b: tuple[float, ...], *, paired: bool = False) -> Sides:
    """Return two sides without rounding."""
    return Sides(a, b, paired=paired, least=1e-9)


def found_in(one: Sides, seed: str = "s") -> Estimate:
    """Return the estimate, which there must be."""
    found = estimate(one, seed)
    assert found is not None
    return found


def test_two_samples_by_hand() -> None:
    found = found_in(sides((1.0, 2.0, 3.0), (2.0, 4.0, 6.0)))
    assert found.difference == pytest.approx(2.0)
    assert found.error == pytest.approx(math.sqrt(1 / 3 + 4 / 3))
    assert found.freedom == pytest.approx((5 / 3) ** 2 / ((1 / 3) ** 2 / 2 + (4 / 3) ** 2 / 2))
    low, high = found.interval()
    reach = quantile(0.025, found.freedom) * found.error
    assert low <= 2.0 - reach + 1e-9, "never narrower than Student's"
    assert high >= 2.0 + reach - 1e-9


def test_pairs_take_the_drift_out() -> None:
    drift = (0.0, 3.0, 1.0, 7.0, 2.0, 9.0, 4.0, 5.0)
    b = tuple(value + 0.5 + 0.01 * place for place, value in enumerate(drift))
    low, high = found_in(sides(drift, b, paired=True)).interval()
    assert 0.5 < low < 0.535 < high < 0.57
    low, high = found_in(sides(drift, b)).interval()
    assert low < 0 < high
    few = sides(drift[:-1], b[:-1], paired=True)
    assert len(drift) == MIN_PAIRS
    assert len(few.samples) == 2, "with fewer, they are two samples"


def test_one_run_beside_a_busy_neighbour_hides_nothing() -> None:
    a = (20.9, 21.2, 22.8, 20.8, 21.0, 21.0)
    b = (24.2, 30.1, 24.1, 24.5, 24.2, 24.0)
    found = found_in(sides(a, b))
    # Yuen's method by hand: of six the least and the greatest are trimmed.
    assert found.difference == pytest.approx((24.1 + 24.2 + 24.2 + 24.5) / 4
                                             - (20.9 + 21.0 + 21.0 + 21.2) / 4)  # fmt: skip
    errors = []
    for pulled_in in (
        (20.9, 20.9, 21.0, 21.0, 21.2, 21.2),
        (24.1, 24.1, 24.2, 24.2, 24.5, 24.5),
    ):
        mean = sum(pulled_in) / 6
        errors.append(sum((value - mean) ** 2 for value in pulled_in) / (4 * 3))
    assert found.error == pytest.approx(math.sqrt(sum(errors)))
    assert found.p_value() < 1e-4
    untrimmed = found_in(sides(a[:5], b[:5]))
    assert untrimmed.p_value() > 1e-3, "of five no run can be spared"


def test_the_interval_and_the_p_value_say_the_same() -> None:
    for shift in (0.05, 0.3, 0.5, 0.8, 1.4):
        found = found_in(sides((0.0, 0.3, 0.1, 0.5), (shift, shift + 0.4, shift + 0.1, shift)))
        low, high = found.interval()
        assert (found.p_value() <= 0.05) == (low > 0 or high < 0)


def test_the_same_seed_gives_the_same_and_turned_sides_turn_it() -> None:
    a, b = (1.0, 1.2, 1.9, 1.1), (1.3, 1.4, 3.0, 1.2)
    assert found_in(sides(a, b)) == found_in(sides(a, b))
    turned = found_in(sides(b, a)).interval()
    assert turned == pytest.approx([-end for end in reversed(found_in(sides(a, b)).interval())],
                                   rel=0.2)  # fmt: skip


def test_equal_runs_have_the_scatter_of_rounding_alone() -> None:
    same = Sides((1.0, 1.0), (1.0, 1.0), paired=False, least=0.001)
    assert found_in(same).p_value() == 1.0
    other = Sides((1.0, 1.0, 1.0), (2.0, 2.0, 2.0), paired=False, least=0.001)
    assert found_in(other).p_value() < 1e-6


def test_one_run_tells_nothing_and_three_cells_of_one_run_do() -> None:
    assert estimate(sides((1.0,), (2.0, 3.0)), "s") is None
    cells = [sides((0.0,), (shift,)) for shift in (0.5, 0.6, 0.55)]
    assert pooled(cells[:2], "s") is None
    found = pooled(cells, "s")
    assert found is not None
    assert found.difference == pytest.approx(0.55)
    assert found.freedom == 2
    many = pooled([*cells, *cells], "s")
    assert many is not None
    assert many.freedom == 5
    assert pooled([], "s") is None


def test_cells_together_have_the_same_weight_each() -> None:
    one = sides((0.0, 0.2, 0.1), (1.0, 1.2, 1.1))
    other = sides((5.0, 5.2, 5.1, 5.1), (5.0, 5.2, 5.1, 5.1))
    both = pooled([one, other], "s")
    assert both is not None
    assert both.difference == pytest.approx(0.5)
    assert both.error < found_in(one).error


@pytest.mark.parametrize("runs", [3, 5, 10])
@pytest.mark.parametrize("paired", [False, True])
def test_intervals_of_few_runs_hold_the_truth(runs: int, paired: bool) -> None:
    """A tenth of all runs is an outlier, and all runs drift; 95 % is promised."""
    drawn, tries, held = random.Random(f"{runs}/{paired}"), 120, 0
    for number in range(tries):
        drift, values = 0.0, []
        for _ in range(2 * runs):
            drift += drawn.gauss(0.0, 0.03)
            values.append(drift + drawn.gauss(0.0, 0.05) + 0.5 * (drawn.random() < 0.1))
        one = sides(tuple(values[::2]), tuple(values[1::2]), paired=paired)
        low, high = found_in(one, str(number)).interval()
        held += low <= 0 <= high
    assert held / tries > 0.93

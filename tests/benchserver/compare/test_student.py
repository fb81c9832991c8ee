"""Student's t beside the tables of it."""

from __future__ import annotations

import pytest

from benchserver.compare.student import quantile, upper_tail


@pytest.mark.parametrize(
    ("tail", "freedom", "value"),
    [
        (0.025, 1, 12.7062),
        (0.025, 2, 4.30265),
        (0.025, 10, 2.22814),
        (0.025, 1000, 1.96234),
        (0.005, 3, 5.84091),
        (0.1, 4, 1.53321),
        (0.0005, 5, 6.86883),
        (0.2, 9, 0.883404),
    ],
)
def test_quantiles_as_printed_tables_have_them(tail: float, freedom: float, value: float) -> None:
    assert quantile(tail, freedom) == pytest.approx(value, rel=1e-5)


def test_far_tails_and_both_sides() -> None:
    assert upper_tail(quantile(1e-9, 4.5), 4.5) == pytest.approx(1e-9, rel=1e-4)
    assert upper_tail(-2.0, 3) + upper_tail(2.0, 3) == pytest.approx(1)
    assert upper_tail(0.0, 7) == pytest.approx(0.5)
    assert quantile(0.25, 1) == pytest.approx(1.0), "the quartile of Cauchy's distribution"

"""Means and their intervals, against tables of Student's t."""

from __future__ import annotations

import random

import pytest

from benchserver.sweep.confidence import Estimate, estimate


def test_nothing_and_one_value() -> None:
    assert estimate([]) is None
    assert estimate([3.0]) == Estimate(mean=3.0, half_width=None, count=1)


@pytest.mark.parametrize(
    ("values", "mean", "half_width"),
    [
        ([1.0, 3.0], 2.0, 12.706),
        ([9.0, 10.0, 11.0], 10.0, 4.303 / 3**0.5),
        ([5.0, 5.0, 5.0, 5.0], 5.0, 0.0),
    ],
)
def test_the_interval(values: list[float], mean: float, half_width: float) -> None:
    found = estimate(values)
    assert found is not None
    assert found.mean == mean
    assert found.half_width == pytest.approx(half_width)


def test_the_interval_has_the_mean_in_95_of_100() -> None:
    drawn = random.Random(12)
    inside = 0
    for _ in range(2000):
        found = estimate([drawn.gauss(50.0, 4.0) for _ in range(4)])
        assert found is not None
        assert found.half_width is not None
        inside += abs(found.mean - 50.0) <= found.half_width
    assert 0.93 < inside / 2000 < 0.97

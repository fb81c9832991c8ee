"""The mean of a few repetitions, and how far the true one may be from it: pure.

The interval is Student's t, two-sided, at 95 %: it holds for a few independent repetitions whose
scatter is roughly normal.  One repetition has none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = "95 % t-interval"

_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Quantiles of 97.5 % for 1 to 30 degrees of freedom; with more, the last is a little too wide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean of `count` values, and half the width of its interval; None: one value tells none."""

    mean: float
    half_width: float | None
    count: int


def estimate(values: Sequence[float]) -> Estimate | None:
    """Return the mean of values with its interval; None if there are none."""
    count = len(values)
    if not count:
        return None
    mean = math.fsum(values) / count
    if count == 1:
        return Estimate(mean=mean, half_width=None, count=1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half_width = _t(count - 1) * math.sqrt(variance / count)
    return Estimate(mean=mean, half_width=half_width, count=count)


def _t(freedom: int) -> float:
    return _T[min(freedom, len(_T)) - 1]

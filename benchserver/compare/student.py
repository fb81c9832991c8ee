"""Student's t: its distribution and its quantiles.  Pure; no library of statistics is needed."""

from __future__ import annotations

import math
from functools import lru_cache

_STEPS = 400
_CLOSE = 1e-14
_TINY = 1e-300
_FURTHEST = 1e12
"""No quantile that anybody asks for is larger, even with one degree of freedom."""


def upper_tail(t: float, freedom: float) -> float:
    """Return the probability of a value above `t`."""
    half = _beta(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2
    return half if t >= 0 else 1 - half


@lru_cache(maxsize=4096)
def quantile(tail: float, freedom: float) -> float:
    """Return the value with this probability above it; `tail` is at most 0.5."""
    low, high = 0.0, 1.0
    while upper_tail(high, freedom) > tail and high < _FURTHEST:
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        if upper_tail(middle, freedom) > tail:
            low = middle
        else:
            high = middle
    return high


def _beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    logs = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(logs + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Return its continued fraction, by Lentz's method."""
    c, d = 1.0, 1 / _apart(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _apart(1 + term * d)
            c = _apart(1 + term / c)
            value *= d * c
        if abs(d * c - 1) < _CLOSE:
            break
    return value


def _apart(value: float) -> float:
    """Return a value that can be divided by."""
    return value if abs(value) > _TINY else _TINY

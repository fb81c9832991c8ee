"""How many a second, lately."""

from __future__ import annotations

import pytest

from benchserver.clock import NS_PER_S
from benchserver.monitor.pace import WINDOW_S, Pace


def at(seconds: float) -> int:
    return 5 + int(seconds * NS_PER_S)


def test_before_a_minute_is_over_all_that_came_counts() -> None:
    pace = Pace(at(0))
    assert pace.per_s(at(0)) == 0
    for tenth in range(20):
        pace.add(at(tenth / 10))
    assert pace.per_s(at(2)) == pytest.approx(10)
    assert pace.per_s(at(10)) == pytest.approx(2)


def test_what_is_older_than_a_minute_is_forgotten_even_if_nobody_looked() -> None:
    pace = Pace(at(0))
    for second in range(200):
        for _ in range(100 if second < 100 else 3):
            pace.add(at(second + 0.5))
    assert pace.per_s(at(200)) == pytest.approx(3)
    assert pace.per_s(at(200 + 2 * WINDOW_S)) == 0
    pace.add(at(200 + 2 * WINDOW_S))
    assert pace.per_s(at(201 + 2 * WINDOW_S)) == pytest.approx(1 / (WINDOW_S + 0), rel=0.05)

"""Runs in the order of time: which alternate, and which belong together."""

from __future__ import annotations

import pytest

from benchserver.compare.pairing import in_order


def times(sides: str) -> tuple[list[float], list[float]]:
    """Return when the runs of both sides began, one a second."""
    return (
        [float(at) for at, side in enumerate(sides) if side == "a"],
        [float(at) for at, side in enumerate(sides) if side == "b"],
    )


@pytest.mark.parametrize(
    ("sides", "paired", "apart"),
    [
        ("abab", True, False),
        ("abba", True, False),
        ("baabba", True, False),
        ("aabb", False, True),
        ("bbbaa", False, True),
        ("aab", False, True),
        ("abaabb", False, False),
        ("aba", False, False),
        ("ab", True, False),
    ],
)
def test_what_alternates(sides: str, paired: bool, apart: bool) -> None:
    order = in_order(*times(sides))
    assert (order.paired, order.apart) == (paired, apart)


def test_the_nth_of_both_sides_began_one_after_the_other() -> None:
    order = in_order([30.0, 0.0, 20.0], [25.0, 5.0, 35.0])
    assert order.paired
    assert (order.a, order.b) == ((1, 2, 0), (1, 0, 2))


def test_runs_of_an_unknown_time_are_two_samples() -> None:
    order = in_order([None, 1.0], [0.0, 2.0])
    assert (order.a, order.b, order.paired, order.apart) == ((0, 1), (0, 1), False, False)

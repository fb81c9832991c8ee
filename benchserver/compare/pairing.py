"""Whether the runs of two sides alternate, and which belong together.  Pure.

Sorted by the time of their start, runs that alternate come in couples of one of each side (ABAB,
ABBA): what drifts while they are made cancels in the difference of a couple.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Order:
    """The places of the runs of each side, in the order of time, and what that order was.

    `paired`: the n-th of one side belongs to the n-th of the other.  `apart`: all runs of one side
    came before all of the other.
    """

    a: tuple[int, ...]
    b: tuple[int, ...]
    paired: bool
    apart: bool


def in_order(a_began_s: Sequence[float | None], b_began_s: Sequence[float | None]) -> Order:
    """Return the order of the runs of two sides; None: nobody knows when it began."""
    if None in a_began_s or None in b_began_s:
        return Order(tuple(range(len(a_began_s))), tuple(range(len(b_began_s))), False, False)
    runs = [(began or 0.0, side, place)
            for side, times in (("a", a_began_s), ("b", b_began_s))
            for place, began in enumerate(times)]  # fmt: skip
    runs.sort()
    sides = "".join(side for _, side, _ in runs)
    couples = {sides[place : place + 2] for place in range(0, len(sides), 2)}
    return Order(
        a=tuple(place for _, side, place in runs if side == "a"),
        b=tuple(place for _, side, place in runs if side == "b"),
        paired=couples <= {"ab", "ba"},
        apart=len(runs) > 2 and ("ba" not in sides or "ab" not in sides),
    )

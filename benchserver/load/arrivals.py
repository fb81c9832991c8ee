"""When the requests of an open loop are planned: instants from the start, drawn before the run.

An instant depends on its place alone, never on when an earlier request was sent or answered: a
load that falls behind does not ask for less.  A plan is a row of steps of one rate each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from benchserver.errors import UsageError, one_line
from benchserver.load.tokens import Draws

Spacing = Literal["constant", "poisson"]
"""Requests at equal distances, or as independent users make them."""

MIN_RATE = 0.001
MAX_RATE = 100_000.0
"""Requests a second: no single process plans more of them, and sends far less."""

MAX_STEPS = 1000
"""Of a ramp."""

_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests a second: one rate, or those of a ramp in their order."""

    steps: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A rate from an instant up to, not including, another; None: without end."""

    rate: float
    begin_ns: int
    end_ns: int | None


def parse_rate(text: str) -> Rate:
    """Return the rate that `R`, or a ramp `FROM:TO:STEP`, asks for; UsageError for any other."""
    shown = f"--rate {one_line(text, 80) or 'is empty'}"
    parts = text.split(":")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 3):
        raise UsageError(f"{shown}: expected requests a second, or a ramp FROM:TO:STEP of them")
    for number in numbers:
        if not MIN_RATE <= number <= MAX_RATE:
            raise UsageError(
                f"{shown}: {number:g} is out of range, expected {MIN_RATE:g} to {MAX_RATE:g} "
                "requests a second"
            )
    if len(numbers) == 1:
        return Rate(tuple(numbers))
    return Rate(_ramp(shown, *numbers))


def _ramp(shown: str, low: float, high: float, step: float) -> tuple[float, ...]:
    if low > high:
        raise UsageError(f"{shown}: a ramp goes up, and {low:g} is more than {high:g}")
    # A little more than the quotient: 0.1:0.3:0.1 has three steps, whatever floats make of it.
    count = math.floor((high - low) / step + 1e-9) + 1
    if count > MAX_STEPS:
        raise UsageError(f"{shown}: {count} steps, expected {MAX_STEPS} at most")
    return tuple(min(low + at * step, high) for at in range(count))


def steps_of(rate: Rate, step_ns: int) -> tuple[Step, ...]:
    """Return the steps of a plan; a rate alone has one without end, those of a ramp one length."""
    if len(rate.steps) == 1:
        return (Step(rate=rate.steps[0], begin_ns=0, end_ns=None),)
    return tuple(
        Step(rate=one, begin_ns=at * step_ns, end_ns=(at + 1) * step_ns)
        for at, one in enumerate(rate.steps)
    )


def planned_ns(steps: tuple[Step, ...], spacing: Spacing, seed: int) -> Iterator[int]:
    """Yield the instants of all requests, in their order, from the start in nanoseconds."""
    for at, step in enumerate(steps):
        distances = (
            constant(step.rate)
            if spacing == "constant"
            else poisson(step.rate, Draws.named(seed, f"arrivals {at}"))
        )
        for distance_ns in distances:
            instant_ns = step.begin_ns + distance_ns
            if step.end_ns is not None and instant_ns >= step.end_ns:
                break
            yield instant_ns


def constant(rate: float) -> Iterator[int]:
    """Yield instants at equal distances, the first at 0; exact for any number of them."""
    over, under = rate.as_integer_ratio()
    for place in itertools.count():
        yield place * _SECOND_NS * under // over


def poisson(rate: float, draws: Draws) -> Iterator[int]:
    """Yield the instants of a Poisson process: independent, exponential distances.

    Distances are whole nanoseconds, so that their sum is exact.
    """
    instant_ns = 0
    for place in itertools.count():
        instant_ns += round(-math.log(draws.share(place)) * _SECOND_NS / rate)
        yield instant_ns

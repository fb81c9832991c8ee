"""Plans of arrivals: exact, without drift, and spread as they say."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.errors import UsageError
from benchserver.load.arrivals import (
    MAX_RATE,
    MAX_STEPS,
    MIN_RATE,
    Rate,
    Spacing,
    Step,
    constant,
    parse_rate,
    planned_ns,
    poisson,
    steps_of,
)
from benchserver.load.tokens import Draws

RATES = st.floats(MIN_RATE, MAX_RATE)


@given(RATES, st.integers(0, 500))
def test_constant_instants_are_exact_however_many_came_before(rate: float, place: int) -> None:
    found = next(itertools.islice(constant(rate), place, None))
    assert found == math.floor(Fraction(10**9) * place / Fraction(rate))


def test_constant_instants_begin_at_once() -> None:
    assert list(itertools.islice(constant(3.0), 5)) == [
        0,
        333_333_333,
        666_666_666,
        1_000_000_000,
        1_333_333_333,
    ]


@pytest.mark.parametrize("rate", [0.5, 10.0, 99.9, 20_000.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_poisson_distances_are_exponential(rate: float, seed: int) -> None:
    """Kolmogorov and Smirnov: the greatest distance from the distribution, at 1 per mille."""
    count = 20_000
    steps = steps_of(Rate((rate,)), 1)
    instants = list(itertools.islice(planned_ns(steps, "poisson", seed), count))
    gaps = [b - a for a, b in itertools.pairwise([0, *instants])]
    shares = sorted(-math.expm1(-gap * rate / 1e9) for gap in gaps)
    above = max((at + 1) / count - share for at, share in enumerate(shares))
    below = max(share - at / count for at, share in enumerate(shares))
    assert max(above, below) < 1.95 / math.sqrt(count)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_poisson_instants_lie_evenly_in_a_window_and_their_distances_are_unrelated(
    seed: int,
) -> None:
    instants = list(itertools.islice(poisson(100.0, Draws.named(seed, "arrivals 0")), 20_000))
    shares = [instant / (instants[-1] + 1) for instant in instants]
    distance = max(abs(share - at / len(shares)) for at, share in enumerate(shares))
    assert distance < 1.95 / math.sqrt(len(shares))
    gaps = [b - a for a, b in itertools.pairwise(instants)]
    mean = sum(gaps) / len(gaps)
    pairs = sum((a - mean) * (b - mean) for a, b in itertools.pairwise(gaps))
    assert abs(pairs / sum((gap - mean) ** 2 for gap in gaps)) < 4 / math.sqrt(len(gaps))


def test_constant_arrivals_would_not_pass_for_poisson() -> None:
    gaps = [b - a for a, b in itertools.pairwise(itertools.islice(constant(100.0), 2_000))]
    shares = sorted(-math.expm1(-gap / 1e7) for gap in gaps)
    distance = max(share - at / len(gaps) for at, share in enumerate(shares))
    assert distance > 1.95 / math.sqrt(len(gaps))


@given(RATES, st.integers(0, 1000), st.sampled_from(get_args(Spacing)))
def test_plans_never_go_back_and_are_the_same_for_a_seed(
    rate: float, seed: int, spacing: Spacing
) -> None:
    steps = steps_of(Rate((rate,)), 1)
    one, other = (list(itertools.islice(planned_ns(steps, spacing, seed), 50)) for _ in range(2))
    assert one == other == sorted(one)
    assert one[0] >= 0


def test_a_ramp_plans_each_step_from_its_own_beginning() -> None:
    steps = steps_of(Rate((1.0, 2.0, 4.0)), 10**9)
    assert steps == (
        Step(rate=1.0, begin_ns=0, end_ns=10**9),
        Step(rate=2.0, begin_ns=10**9, end_ns=2 * 10**9),
        Step(rate=4.0, begin_ns=2 * 10**9, end_ns=3 * 10**9),
    )
    quarter = 250_000_000
    assert list(planned_ns(steps, "constant", 1)) == [
        0,
        *(10**9 + at * 2 * quarter for at in range(2)),
        *(2 * 10**9 + at * quarter for at in range(4)),
    ]


@given(st.integers(0, 1000))
def test_a_ramp_of_poisson_arrivals_has_about_as_many_as_asked_for(seed: int) -> None:
    steps = steps_of(Rate((100.0, 400.0)), 10 * 10**9)
    instants = list(planned_ns(steps, "poisson", seed))
    assert instants == sorted(instants)
    first = sum(instant < 10 * 10**9 for instant in instants)
    assert abs(first - 1000) < 6 * math.sqrt(1000)
    assert abs(len(instants) - first - 4000) < 6 * math.sqrt(4000)
    assert instants[-1] < 20 * 10**9


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("5", (5.0,)),
        ("0.001", (0.001,)),
        ("1e3", (1000.0,)),
        ("10:40:10", (10.0, 20.0, 30.0, 40.0)),
        ("10:45:10", (10.0, 20.0, 30.0, 40.0)),
        ("10:10:5", (10.0,)),
        ("0.1:0.3:0.1", (0.1, 0.2, 0.3)),
    ],
)
def test_rates_and_ramps_are_read(text: str, steps: tuple[float, ...]) -> None:
    assert parse_rate(text).steps == pytest.approx(steps)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty: expected requests a second, or a ramp FROM:TO:STEP"),
        ("0", "0 is out of range, expected 0.001 to 100000 requests a second"),
        ("-1", "-1 is out of range"),
        ("nan", "nan is out of range"),
        ("inf", "inf is out of range"),
        ("1e9", "1e+09 is out of range"),
        ("fast", "expected requests a second"),
        ("1:2", "expected requests a second"),
        ("1:2:3:4", "expected requests a second"),
        ("1:two:3", "expected requests a second"),
        ("20:10:1", "a ramp goes up, and 20 is more than 10"),
        ("1:2:0", "0 is out of range"),
        ("1:1e5:1", f"100000 steps, expected {MAX_STEPS} at most"),
        ("1\n2", "expected requests a second"),
    ],
)
def test_what_is_no_rate_is_one_line(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_rate(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=30))
def test_any_text_is_a_rate_or_one_line(text: str) -> None:
    error, steps = "", tuple[float, ...]()
    try:
        steps = parse_rate(text).steps
    except UsageError as refused:
        error = str(refused)
    assert error.isprintable()
    assert bool(error) is not (1 <= len(steps) <= MAX_STEPS)
    assert all(MIN_RATE <= step <= MAX_RATE for step in steps)

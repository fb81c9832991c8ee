"""Whether something grows: false alarms are rare, and a real leak is found."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from benchserver.stats import growth
from benchserver.stats.growth import Judgement, Sample, fit_of

MB = 1e6
BOUND = 8 * MB
EVERY_S = 5.0
HOUR_S = 3600.0
AMPLITUDE = 20 * MB

Value = Callable[[float], float]
"""What is in use so long after the begin."""

Shape = Callable[[random.Random, float], Value]


def noise(draw: random.Random, lasts_s: float) -> Value:
    return lambda at_s: draw.gauss(0, AMPLITUDE / 4)


def wandering(draw: random.Random, lasts_s: float) -> Value:
    """Each value is near the one before, as memory is."""
    state = [0.0]

    def value(at_s: float) -> float:
        state[0] = 0.97 * state[0] + draw.gauss(0, AMPLITUDE / 5)
        return state[0]

    return value


def sawtooth(draw: random.Random, lasts_s: float) -> Value:
    period_s = draw.uniform(20, lasts_s / 4)
    return lambda at_s: at_s % period_s / period_s * AMPLITUDE + draw.gauss(0, AMPLITUDE / 50)


def step(draw: random.Random, lasts_s: float) -> Value:
    then_s = draw.uniform(0, lasts_s)
    return lambda at_s: AMPLITUDE * (at_s > then_s) + draw.gauss(0, AMPLITUDE / 50)


def filling(draw: random.Random, lasts_s: float) -> Value:
    full_s = draw.uniform(10, lasts_s / 3)
    return lambda at_s: 20 * AMPLITUDE * min(1, at_s / full_s) + draw.gauss(0, AMPLITUDE / 50)


def samples(value: Value, lasts_s: float, leak_per_hour: float = 0) -> list[tuple[float, float]]:
    times = [EVERY_S * number for number in range(int(lasts_s / EVERY_S) + 1)]
    return [(at_s, value(at_s) + leak_per_hour * at_s / HOUR_S) for at_s in times]


def judge_growth(seen: Sequence[Sample], bound: float, least: float = 0.0) -> Judgement:
    return growth.judge_growth(seen, bound, least, EVERY_S)


def blocks_of(seen: Sequence[Sample]) -> list[Sample]:
    return growth.blocks_of(seen, EVERY_S)


def verdicts(shape: Shape, lasts_s: float, leak_per_hour: float = 0) -> Counter[str]:
    draw = random.Random(f"{shape.__name__} {lasts_s}")
    return Counter(
        judge_growth(samples(shape(draw, lasts_s), lasts_s, leak_per_hour), BOUND).verdict
        for _ in range(40)
    )


@pytest.mark.parametrize("shape", [noise, wandering, sawtooth, step, filling])
@pytest.mark.parametrize("lasts_s", [200, 600])
def test_what_does_not_grow_is_hardly_ever_said_to(shape: Shape, lasts_s: float) -> None:
    """Two of forty: what wanders for ten minutes does grow, now and then."""
    assert verdicts(shape, lasts_s)["grows"] <= 2


@pytest.mark.parametrize("shape", [noise])
def test_a_leak_is_found_within_five_minutes(shape: Shape) -> None:
    """100 kB a sequence, four sequences a second."""
    found = verdicts(shape, 300, leak_per_hour=0.1 * MB * 4 * HOUR_S)
    assert found["grows"] >= 34
    assert not found["flat"]


def test_what_does_not_move_is_flat() -> None:
    judged = judge_growth(samples(lambda at_s: 7.0, 200), BOUND)
    assert judged.verdict == "flat"
    assert judged.fit is not None
    assert (judged.fit.low, judged.fit.slope, judged.fit.high) == (0, 0, 0)


def test_what_shrinks_is_flat() -> None:
    assert judge_growth(samples(lambda at_s: -1e6 * at_s, 200), BOUND).verdict == "flat"


def test_a_steady_leak_has_its_slope_and_is_held_against_the_bound() -> None:
    slow, fast = (samples(lambda at_s: 0.0, 300, leak) for leak in (7.9 * MB, 8.1 * MB))
    assert judge_growth(slow, BOUND).verdict == "flat"
    judged = judge_growth(fast, BOUND)
    assert judged.verdict == "grows"
    assert judged.fit is not None
    assert judged.fit.slope == pytest.approx(8.1 * MB)


def test_one_descriptor_now_and_then_is_a_leak() -> None:
    assert judge_growth(samples(lambda at_s: at_s // 20, 300), 2.0).verdict == "grows"


def test_what_went_up_once_is_no_leak_however_late() -> None:
    for then_s in range(50, 600, 50):
        found = judge_growth(samples(lambda at_s: float(at_s > then_s), 600), 2.0)  # noqa: B023
        assert found.verdict != "grows", then_s


def test_what_has_come_to_its_end_is_no_leak() -> None:
    """The whole of it rises, its later half does not."""
    found = judge_growth(samples(lambda at_s: min(at_s, 370) * MB, 600), BOUND)
    assert found.verdict != "grows"


def test_bursts_do_not_count() -> None:
    found = judge_growth(samples(lambda at_s: 50.0 * (int(at_s) % 10 == 0), 600), 2.0)
    assert found.verdict == "flat"


@pytest.mark.parametrize("lasts_s", [0, 5, 60, 145])
def test_too_little_says_nothing(lasts_s: float) -> None:
    judged = judge_growth(samples(lambda at_s: 1e9 * at_s, lasts_s), BOUND)
    assert (judged.verdict, judged.fit) == ("cannot tell yet", None)
    assert judge_growth([], BOUND).verdict == "cannot tell yet"


def test_the_beginning_is_left_out() -> None:
    blocks = blocks_of(samples(lambda at_s: at_s, 1000))
    assert len(blocks) == 24
    assert blocks[0][1] == 250
    assert blocks_of(samples(lambda at_s: at_s, 100))[0][1] == 45


def test_an_interval_that_no_rank_ends_is_open() -> None:
    fit = fit_of([(0.0, 0.0), (1.0, 1.0), (2.0, 0.0), (3.0, 1.0), (4.0, 0.0)])
    assert (fit.low, fit.high) == (-math.inf, math.inf)


def test_little_is_not_called_growth() -> None:
    rising = samples(lambda at_s: 1.0 * at_s, 300)
    assert judge_growth(rising, 2.0, 200).verdict == "grows"
    assert judge_growth(rising, 2.0, 230).verdict == "cannot tell yet"

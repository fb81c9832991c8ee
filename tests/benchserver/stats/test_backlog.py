"""Backlogs: what is kept of many samples, and which trends they have."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise

import pytest

from benchserver.stats.backlog import MOST_SAMPLES, Backlog, BacklogSample, Trend, trend_of


def samples(waiting: Iterable[int]) -> list[BacklogSample]:
    return [
        BacklogSample(at_s=float(at_s), waiting=count, in_use=4, leases=4)
        for at_s, count in enumerate(waiting)
    ]


def test_samples_are_kept_at_equal_distances() -> None:
    backlog = Backlog(most_samples=4)
    for sample in samples(range(17)):
        backlog.add(sample)
    assert [sample.at_s for sample in backlog.samples] == [0, 8, 16]


def test_a_week_keeps_no_more_than_there_may_be() -> None:
    backlog = Backlog()
    for sample in samples(range(100_000)):
        backlog.add(sample)
    kept = backlog.samples
    assert MOST_SAMPLES // 2 < len(kept) <= MOST_SAMPLES
    assert len({later.at_s - sooner.at_s for sooner, later in pairwise(kept)}) == 1
    assert trend_of(kept) == Trend(per_s=1.0, steadiness=1.0)


@pytest.mark.parametrize("waiting", [[], [3], [0, 0, 0, 0], [7] * 10])
def test_what_does_not_move_has_no_trend(waiting: list[int]) -> None:
    assert trend_of(samples(waiting)) == Trend(per_s=0.0, steadiness=0.0)


def test_two_samples_of_one_instant_have_no_slope() -> None:
    twice = BacklogSample(at_s=1.0, waiting=1, in_use=1, leases=1)
    assert trend_of([twice, twice]) == Trend(per_s=0.0, steadiness=0.0)


def test_a_burst_that_drains_is_no_trend() -> None:
    quiet = [0] * 14
    assert trend_of(samples([*quiet, 100, 60, 20, *quiet])).per_s == 0.0


def test_a_backlog_that_grows_through_noise_is_one() -> None:
    chance = random.Random(4)
    grown = trend_of(samples(2 * n + chance.randrange(10) for n in range(60)))
    assert grown.per_s == pytest.approx(2.0, rel=0.1)
    assert grown.steadiness > 0.8
    drained = trend_of(samples(200 - 2 * n for n in range(60)))
    assert drained == Trend(per_s=-2.0, steadiness=-1.0)


def test_noise_alone_is_not_steady() -> None:
    chance = random.Random(5)
    assert abs(trend_of(samples(chance.randrange(10) for _ in range(60))).steadiness) < 0.3

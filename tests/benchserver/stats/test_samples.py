"""Samples of one value over time."""

from __future__ import annotations

from itertools import pairwise

from benchserver.stats.samples import MOST_SAMPLES, Samples


def test_few_are_all_kept() -> None:
    samples = Samples()
    assert all(samples.add(at, 2.0 * at) for at in range(5))
    assert samples.kept == [(at, 2.0 * at) for at in range(5)]


def test_many_lie_at_equal_distances_from_the_first_to_the_last() -> None:
    samples = Samples()
    for at in range(100_000):
        samples.add(at, -at)
        assert len(samples.kept) <= MOST_SAMPLES
    times = [at for at, _ in samples.kept]
    (distance,) = {later - sooner for sooner, later in pairwise(times)}
    assert times[0] == 0
    assert times[-1] > 100_000 - 2 * distance
    assert len(times) > MOST_SAMPLES // 2 - 1

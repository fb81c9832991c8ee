"""Whether something grows: a slope by a robust fit, with its confidence, out of few samples.  Pure.

Memory and the like are looked at now and then.  What is left out is the beginning, in which
everything grows: buffers, pools and caches fill up once.  The rest is cut into blocks of equal
time, and each block stands for its least value: what a leak leaves behind is there at any moment; a
burst, or a garbage collector's sawtooth, is not.  The slope is the median of all slopes between two
blocks (Theil and Sen), and its interval has the ranks that Kendall's statistic leaves open at 99 %.
Neighbours that resemble each other say less than strangers would: the interval is widened by what
their correlation is once the slope is taken out of them.

Something *grows* only if its interval lies above the bound, that of all blocks and that of the
later half, and it goes on in every quarter: what went up once, or in a few steps, and stays there
is no leak.  And so much must have been added as is
worth a word: a process that has just begun still takes what it needs, a little at a time.  It is
*flat* if the interval lies below the bound.  All else cannot be told yet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Literal

Sample = tuple[float, float]
"""When, in seconds, and how much."""

Verdict = Literal["flat", "grows", "cannot tell yet"]

LEAST_LOOKS = 30
"""A run that is judged lasts as long as so many looks: less says nothing of hours."""

_WARM_UP_LOOKS = 9
_WARM_UP_SHARE = 0.25
"""What is left out: the larger of the two, the share one of the whole run."""

_PARTS = 4
"""Of the time: in each of them it must go on.  Two or three steps up are no leak."""

_BLOCKS = 24
_LEAST_BLOCKS = 10
_Z = 2.576
"""99 %, on both sides together."""

_MOST_CORRELATION = 0.6
"""More is not believed: else what rises all the time, now faster and now slower, is never told."""
_S_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A slope an hour, and the ends of its interval."""

    slope: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Whether it grows by more than a bound; `fit` None: there is too little for a slope."""

    verdict: Verdict
    fit: Fit | None


def judge_growth(
    samples: Sequence[Sample], bound: float, least: float, every_s: float
) -> Judgement:
    """Judge samples in the order of time, from the begin of a run on.

    It may grow by `bound` an hour, and by `least` in all.  Looks were made every so many seconds.
    """
    blocks = blocks_of(samples, every_s)
    if len(blocks) < _LEAST_BLOCKS or samples[-1][0] - samples[0][0] < LEAST_LOOKS * every_s:
        return Judgement(verdict="cannot tell yet", fit=None)
    fit = fit_of(blocks)
    if fit.high <= bound:
        return Judgement(verdict="flat", fit=fit)
    added = fit.slope * (blocks[-1][0] - blocks[0][0]) / _S_PER_HOUR
    later = fit_of(blocks[len(blocks) // 2 :], widened=False)
    always = all(fit_of(part, widened=False).slope > bound for part in _parts_of(blocks))
    grows = min(fit.low, later.low) > bound and added > least and always
    return Judgement(verdict="grows" if grows else "cannot tell yet", fit=fit)


def _parts_of(blocks: Sequence[Sample]) -> list[Sequence[Sample]]:
    """Return the quarters of the time, or thirds if a quarter is too little for a slope."""
    parts = _PARTS if len(blocks) >= 3 * _PARTS else _PARTS - 1
    edges = [len(blocks) * part // parts for part in range(parts + 1)]
    return [blocks[first:last] for first, last in pairwise(edges)]


def blocks_of(samples: Sequence[Sample], every_s: float) -> list[Sample]:
    """Return the least values of blocks of equal time, without the beginning."""
    if len(samples) < 2:
        return []
    began_s, ended_s = samples[0][0], samples[-1][0]
    first_s = began_s + max(_WARM_UP_LOOKS * every_s, _WARM_UP_SHARE * (ended_s - began_s))
    rest = [sample for sample in samples if sample[0] >= first_s]
    number = min(_BLOCKS, len(rest) // 2)
    if number < 1 or ended_s <= first_s:
        return []
    length_s = (ended_s - first_s) / number
    blocks: list[list[Sample]] = [[] for _ in range(number)]
    for sample in rest:
        blocks[min(number - 1, int((sample[0] - first_s) / length_s))].append(sample)
    return [
        (fmean(at_s for at_s, _ in block), min(value for _, value in block))
        for block in blocks
        if block
    ]


def fit_of(blocks: Sequence[Sample], *, widened: bool = True) -> Fit:
    """Return the slope through blocks, of which there are at least three, and its interval.

    `widened`: by how much neighbours are alike.
    """
    slopes = sorted(
        (later - sooner) / (later_s - sooner_s)
        for i, (sooner_s, sooner) in enumerate(blocks)
        for later_s, later in blocks[i + 1 :]
    )
    slope, count = median(slopes), len(blocks)
    variance = count * (count - 1) * (2 * count + 5) / 18
    spread = _Z * math.sqrt(variance * (_inflation(blocks, slope) if widened else 1.0))
    low = math.floor((len(slopes) - spread) / 2)
    high = math.ceil((len(slopes) + spread) / 2)
    return Fit(
        slope=slope * _S_PER_HOUR,
        low=(slopes[low] if low >= 0 else -math.inf) * _S_PER_HOUR,
        high=(slopes[high] if high < len(slopes) else math.inf) * _S_PER_HOUR,
    )


def _inflation(blocks: Sequence[Sample], slope: float) -> float:
    """Return by how much the variance is larger than that of blocks without correlation."""
    rest = [value - slope * at_s for at_s, value in blocks]
    middle = fmean(rest)
    rest = [value - middle for value in rest]
    square = sum(value * value for value in rest)
    if not square:
        return 1.0
    lagged = sum(sooner * later for sooner, later in pairwise(rest)) / square
    # Taking a line out of so few makes neighbours look less alike than they are.
    correlation = min(_MOST_CORRELATION, lagged + 2 / len(rest))
    return (1 + correlation) / (1 - correlation) if correlation > 0 else 1.0

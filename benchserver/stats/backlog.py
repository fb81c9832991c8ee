"""Requests that are due and not yet sent, looked at now and then, in bounded memory.

An open loop plans its requests whatever the server does.  What it cannot send, because everything
it may have under way is under way, waits here.  Whether that grows is seen in samples at equal
distances; when there are too many, every second one is dropped, and later ones come half as often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

MOST_SAMPLES = 256
"""Their pairs, of which the trend is the median, are 32,640 at most: some milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogSample:
    """How many requests were `waiting` at an instant.

    `in_use` of all leases were in the server's hands then: from the first call of a request to the
    answer of its last.
    """

    at_s: float
    waiting: int
    in_use: int
    leases: int


class Backlog:
    """Samples of one run, or of one step of a ramp."""

    def __init__(self, *, most_samples: int = MOST_SAMPLES) -> None:
        self._most_samples = most_samples
        self._every = 1
        self._offered = 0
        self._samples: list[BacklogSample] = []

    def add(self, sample: BacklogSample) -> None:
        """Take a sample; they come in the order of time, at equal distances."""
        if self._offered % self._every == 0:
            self._samples.append(sample)
        self._offered += 1
        if len(self._samples) > self._most_samples:
            del self._samples[1::2]
            self._every *= 2

    @property
    def samples(self) -> tuple[BacklogSample, ...]:
        """Return what was kept."""
        return tuple(self._samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Where a backlog goes: `per_s`, and how steadily (-1: always down, 1: always up)."""

    per_s: float
    steadiness: float


def trend_of(samples: Sequence[BacklogSample]) -> Trend:
    """Return the median of all slopes between two samples, and what their signs add up to.

    So many as lie on either side of a burst, or of a second in which nothing was answered, do not
    change it: only what goes on does.
    """
    slopes = [
        (later.waiting - sooner.waiting) / (later.at_s - sooner.at_s)
        for i, sooner in enumerate(samples)
        for later in samples[i + 1 :]
        if later.at_s > sooner.at_s
    ]
    if not slopes:
        return Trend(per_s=0.0, steadiness=0.0)
    rising = sum(slope > 0 for slope in slopes) - sum(slope < 0 for slope in slopes)
    return Trend(per_s=median(slopes), steadiness=rising / len(slopes))

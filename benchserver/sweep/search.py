"""The highest rate that keeps a service level: which rate to try next, from those tried.  Pure.

Rates double as long as they keep it, or halve until one does; then the gap is bisected until it is
5 % of the rate.  A run that the harness held back, or that proves nothing, says nothing about the
server: it does not count as kept, and it ends the search.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchserver.stats.limit import SERVER
from benchserver.sweep.figures import Figures
from benchserver.sweep.slo import Condition

FIRST_RATE = 8.0
"""Where a search begins, unless the matrix has a rate."""

MOST_RUNS = 24
LEAST_RATE = 0.05
_NEAR = 0.05
_DIGITS = 4


class Kept(enum.Enum):
    """What a run says about the service level at its rate."""

    KEPT = "kept"
    BROKEN = "broken"
    NO_ANSWER = "no answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One run at a rate, and why it is not kept."""

    rate: float
    kept: Kept
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The highest rate that was kept, None if none was, and why the search ended there.

    `complete`: it ended by itself, so that the rate is the answer.
    """

    rate: float | None
    why: str
    complete: bool
    tried: int


def judged(rate: float, figures: Figures, conditions: Sequence[Condition]) -> Probe:
    """Return what a run says."""
    if not figures.proven:
        return Probe(rate=rate, kept=Kept.NO_ANSWER, why="the run is not proven")
    if not figures.valid and figures.limit != SERVER:
        side = f"the limit was the {figures.limit}" if figures.limit else "no limit is known"
        why = ": ".join(["the run is invalid as a measurement", side, *figures.reasons])
        return Probe(rate=rate, kept=Kept.NO_ANSWER, why=why)
    unknown = [c.figure for c in conditions if c.kept_by(figures.values) is None]
    if unknown:
        why = f"the run has no {', '.join(unknown)}"
        return Probe(rate=rate, kept=Kept.NO_ANSWER, why=why)
    broken = [_broken(c, figures.values) for c in conditions if not c.kept_by(figures.values)]
    if not figures.valid:
        broken.append("the server did not keep up with the rate")
    kept = Kept.BROKEN if broken else Kept.KEPT
    return Probe(rate=rate, kept=kept, why=", ".join(broken))


def _broken(condition: Condition, values: Mapping[str, float]) -> str:
    return f"{condition.figure} was {values[condition.figure]:.4g}, asked: {condition.text}"


def next_rate(tried: Sequence[Probe], first: float, most: float) -> float | None:
    """Return the rate to try next; None: the search is over."""
    if not tried:
        return min(first, most)
    if len(tried) >= MOST_RUNS or any(probe.kept is Kept.NO_ANSWER for probe in tried):
        return None
    low, high = _bounds(tried)
    if low is None:
        assert high is not None
        return _rounded(high / 2) if high > LEAST_RATE else None
    if high is None:
        return min(_rounded(low * 2), most) if low < most else None
    if high - low <= _NEAR * low:
        return None
    between = _rounded((low + high) / 2)
    return between if low < between < high else None


def found(tried: Sequence[Probe], most: float) -> Found:
    """Return what a search that is over has found."""
    low, high = _bounds(tried)
    lost = next((probe for probe in tried if probe.kept is Kept.NO_ANSWER), None)
    why, complete = "", True
    if lost is not None:
        why, complete = f"ended at {lost.rate:g}/s: {lost.why}", False
    elif low is not None and high is None:
        why = f"kept at --max-rate {most:g}" if low >= most else f"ended after {len(tried)} runs"
        complete = low >= most
    elif low is None:
        why = f"not kept at {high:g}/s either" if high is not None else "nothing was tried"
        complete = high is not None and high <= LEAST_RATE
    else:
        assert high is not None
        broken = next(probe for probe in tried if probe.rate == high)
        why, complete = f"not at {high:g}/s: {broken.why}", high - low <= 2 * _NEAR * low
    return Found(rate=low, why=why, complete=complete, tried=len(tried))


def _bounds(tried: Sequence[Probe]) -> tuple[float | None, float | None]:
    """Return the highest rate that was kept below the lowest that was not, and that one."""
    high = min((p.rate for p in tried if p.kept is Kept.BROKEN), default=None)
    kept = (p.rate for p in tried if p.kept is Kept.KEPT and (high is None or p.rate < high))
    return max(kept, default=None), high


def _rounded(rate: float) -> float:
    return float(f"{rate:.{_DIGITS}g}")

"""Resources of both sides over time, in bounded memory, and whether each of them grows.

Memory that a server takes for what it caches is no leak.  What lies in its L1, by its own /status,
is taken off its memory as far as that rises: if what is left does not grow, L1 filling up explains
it.  What the bench keeps of a load, up to a bound, is taken off its own memory likewise.  A server
whose L1 is in memory from the start looks as if it shrank then, and one that keeps account of what
it stores needs memory for that too: of these nothing is said before L1 is full, unless they grow by
twice as much as it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from benchserver.config.watch import EVERY_S, MEMORY, least_growth
from benchserver.monitor.snapshot import Growth, ResourceNow, Side, Unit
from benchserver.stats.growth import LEAST_LOOKS, Fit, Judgement, blocks_of, judge_growth
from benchserver.stats.samples import Samples

L1_MAY_LIE_IN = ("server memory", "shared memory")

_EXPLAINS: Mapping[str, tuple[str, str]] = {
    "our memory": (
        "what the bench keeps of the load explains its growth",
        "what the bench keeps of the load grows meanwhile, up to a bound",
    ),
    **dict.fromkeys(
        L1_MAY_LIE_IN,
        ("what is stored in L1 explains its growth", "its L1 fills up meanwhile"),
    ),
}
"""What is said of memory that is filled, if that explains its growth, and if nobody can tell."""

_S_PER_HOUR = 3600.0
_OVER_EXPLAINED = 0.25
"""What fills up explains what grows if the rest shrinks by no more than this share of it."""


@dataclass(slots=True, kw_only=True)
class _Track:
    """One resource: what was seen of it, as it was and without what it is filled with."""

    name: str
    bound: float
    every_s: float
    samples: Samples = field(default_factory=Samples)
    rest: Samples = field(default_factory=Samples)
    filled: float = 0.0
    """The most that it was filled with."""
    value: float | None = None
    verdict: Growth = "not measured"
    fit: Fit | None = None
    reason: str = ""
    told: bool = False
    """Whether it was said that it grows, and it has not been flat since."""
    base: str = ""
    """Why it is counted from later than the begin, if it is."""

    @property
    def too_short(self) -> str:
        return f"it takes {LEAST_LOOKS * self.every_s:g} s or more to tell"

    @property
    def side(self) -> Side:
        return "ours" if self.name.startswith("our ") else "server"

    @property
    def unit(self) -> Unit:
        return "bytes" if self.name in MEMORY else "count"


class Resources:
    """All resources of one run, by their names of `config.watch`."""

    def __init__(self, bounds: Mapping[str, float], every_s: float = EVERY_S) -> None:
        """`bounds` say how much may be added an hour; a look is made every so many seconds."""
        self._tracks = {
            name: _Track(name=name, bound=bound, every_s=every_s) for name, bound in bounds.items()
        }

    def see(
        self, at_s: float, values: Mapping[str, float], filling: Mapping[str, float] | None = None
    ) -> tuple[str, ...]:
        """Take what was seen at one moment; `filling` is what memory may be filled with.

        Returns what has begun to grow, in words.
        """
        news = []
        for name, value in values.items():
            track = self._tracks[name]
            track.value = value
            kept = track.samples.add(at_s, value)
            track.filled = max(track.filled, (filling or {}).get(name, 0.0))
            track.rest.add(at_s, value - track.filled)
            if kept:
                _judge(track)
            if track.verdict == "grows" and not track.told:
                news.append(track.reason)
            track.told = track.verdict == "grows" or (track.told and track.verdict != "flat")
        return tuple(news)

    def unseen(self, names: Iterable[str], reason: str) -> None:
        """Say why some are not seen now; what was seen before counts on."""
        for name in names:
            track = self._tracks[name]
            track.value = None
            if not track.samples.kept:
                track.reason = reason

    def begin_anew(self, at_s: float, why: str) -> None:
        """Forget what was seen of the server: it is another process."""
        for name, track in self._tracks.items():
            if track.side == "server":
                base = f"counted from {at_s:.0f} s on: {why}"
                self._tracks[name] = _Track(
                    name=name, bound=track.bound, every_s=track.every_s, base=base
                )

    def now(self) -> tuple[ResourceNow, ...]:
        """Return what is known of each, in the order of reports."""
        return tuple(_now(track) for track in self._tracks.values())

    def samples(self) -> dict[str, list[tuple[float, float]]]:
        """Return what was kept of each."""
        return {name: list(track.samples.kept) for name, track in self._tracks.items()}


def _judge(track: _Track) -> None:
    raw, note = _judged(track, track.samples), ""
    judged: Judgement = raw
    if track.filled and raw.verdict != "flat" and raw.fit is not None:
        judged, note = _without_filling(track, raw, raw.fit)
    track.verdict, track.fit = judged.verdict, judged.fit
    parts = [_said(track, judged), note, track.base]
    track.reason = "; ".join(part for part in parts if part)


def _judged(track: _Track, samples: Samples, filled: float = 0.0) -> Judgement:
    """Judge samples; `filled` is by how much it is filled an hour meanwhile."""
    least = least_growth(track.name, track.bound)
    return judge_growth(samples.kept, track.bound + filled, least, track.every_s)


def _without_filling(track: _Track, raw: Judgement, fit: Fit) -> tuple[Judgement, str]:
    """Judge what is left if what fills it up is taken off, and say what that means."""
    filling = blocks_of(
        [
            (at_s, value - left)
            for (at_s, value), (_, left) in zip(track.samples.kept, track.rest.kept, strict=True)
        ],
        track.every_s,
    )
    (first_s, first), (last_s, last) = filling[0], filling[-1]
    if last <= first:
        return raw, ""
    filled = (last - first) * _S_PER_HOUR / (last_s - first_s)
    explains, fills = _EXPLAINS[track.name]
    left = _judged(track, track.rest, filled)
    if left.fit is None or left.verdict == "grows":
        return left, ""
    explained = left.fit.slope >= -_OVER_EXPLAINED * max(fit.slope, track.bound)
    if left.fit.high <= track.bound and explained:
        return Judgement(verdict="flat", fit=left.fit), explains
    return Judgement(verdict="cannot tell yet", fit=fit), fills


def _said(track: _Track, judged: Judgement) -> str:
    fit = judged.fit
    if fit is None:
        return track.too_short
    unit = track.unit
    grow = "grows by" if unit == "bytes" else "grow by"
    verb = grow if judged.verdict == "grows" else "may grow by"
    bounds = f"({_shown(fit.low, unit)} to {_shown(fit.high, unit)}), bound"
    slope, bound = per_hour(fit.slope, unit), per_hour(track.bound, unit)
    if judged.verdict == "flat":
        return f"{track.name}: {slope} {bounds} {bound}"
    return f"{track.name} {verb} {slope} {bounds} {bound}"


def per_hour(slope: float, unit: Unit) -> str:
    """Return a slope in words."""
    return f"{_shown(slope, unit)} {'MB/h' if unit == 'bytes' else 'an hour'}"


def _shown(slope: float, unit: Unit) -> str:
    if math.isinf(slope):
        return "not known"
    value = slope / 1e6 if unit == "bytes" else slope
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _now(track: _Track) -> ResourceNow:
    fit = track.fit
    return ResourceNow(
        name=track.name,
        side=track.side,
        unit=track.unit,
        value=track.value,
        verdict=track.verdict,
        reason=track.reason or track.too_short,
        slope_per_hour=None if fit is None else fit.slope,
        low_per_hour=None if fit is None else _finite(fit.low),
        high_per_hour=None if fit is None else _finite(fit.high),
        bound_per_hour=track.bound,
    )


def _finite(slope: float) -> float | None:
    return slope if math.isfinite(slope) else None

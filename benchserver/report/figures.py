"""Figures of a run that goes on, in words: times, sizes, rates, how long it may last.  Pure."""

from __future__ import annotations

from benchserver.check.verdict import Verdict
from benchserver.monitor.snapshot import ResourceNow, Snapshot

SO_FAR = {
    Verdict.VALID: "nothing wrong so far",
    Verdict.UNKNOWN: "not proven so far",
    Verdict.INVALID: "FAILED",
}
"""How the verdict of a run is told before its end."""

_NOTHING_YET = "nothing proven yet"
_NO_FIGURE = "-"
_UNITS = ("KiB", "MiB", "GiB", "TiB")


def verdict_text(now: Snapshot) -> str:
    """Say how good a run is so far; with nothing concluded, nothing is known."""
    if now.verdict is Verdict.UNKNOWN and not now.proven + now.failed + now.unproven:
        return _NOTHING_YET
    return SO_FAR[now.verdict]


def clock_text(seconds: float) -> str:
    """Return a time as clocks show it: `0:03:12`, `2d 03:04:05`."""
    minutes, whole_s = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours:02}:{minutes:02}:{whole_s:02}"
    return f"{hours}:{minutes:02}:{whole_s:02}"


def bytes_text(count: float) -> str:
    """Return a size in the largest unit that leaves at least one of it: `1.25 GiB`."""
    if abs(count) < 1024:
        return f"{count:.0f} B"
    for unit in _UNITS:
        count /= 1024
        if abs(count) < 1000 or unit == _UNITS[-1]:
            break
    return f"{count:.{2 if abs(count) < 10 else 1 if abs(count) < 100 else 0}f} {unit}"


def rate_text(per_s: float) -> str:
    """Return a rate with three digits, as far as they mean anything: `0.25`, `64.1`, `1234`."""
    return f"{per_s:.{2 if per_s < 10 else 1 if per_s < 100 else 0}f}"


def ms_text(milliseconds: float | None) -> str:
    """Return milliseconds, or a dash where there are none."""
    return _NO_FIGURE if milliseconds is None else f"{milliseconds:.2f}"


def value_text(resource: ResourceNow) -> str:
    """Return how much of a resource is in use, or a dash."""
    if resource.value is None:
        return _NO_FIGURE
    return bytes_text(resource.value) if resource.unit == "bytes" else f"{resource.value:.0f}"


def share_done(now: Snapshot) -> float | None:
    """Return how much of a run is over, 0 to 1; None: it has no end that is known."""
    shares = []
    if now.duration_s:
        shares.append(now.at_s / now.duration_s)
    if now.total_units:
        shares.append(_concluded(now) / now.total_units)
    return min(1.0, max(shares)) if shares else None


def seconds_left(now: Snapshot) -> float | None:
    """Return how long a run goes on if it goes on like this; None: nobody knows."""
    left = []
    if now.duration_s is not None:
        left.append(now.duration_s - now.at_s)
    if now.total_units is not None and now.units_per_s > 0:
        left.append((now.total_units - _concluded(now)) / now.units_per_s)
    return max(0.0, min(left)) if left else None


def _concluded(now: Snapshot) -> int:
    return now.proven + now.failed + now.unproven

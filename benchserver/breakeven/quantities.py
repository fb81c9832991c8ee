"""Sizes, times and bandwidths as people write them: `1GiB`, `120ms`, `24GiB/s`.  Pure.

A unit is always said: a bare number of a bandwidth has been both bits and bytes to somebody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from benchserver.errors import UsageError, one_line

_TEXT = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,25})?) ?([A-Za-z]+(?:/s)?)", re.ASCII)
_MAX_SHOWN = 40

_BYTES = {
    "B": 1.0,
    **{f"{letter}B": 1000.0**power for power, letter in enumerate("kMGTP", 1)},
    **{f"{letter}iB": 1024.0**power for power, letter in enumerate("KMGTP", 1)},
}


@dataclass(frozen=True, slots=True)
class Quantity:
    """A kind of quantity: its units, each in the base unit, an example, and the bounds."""

    units: Mapping[str, float]
    example: str
    low: float
    high: float
    bounds_text: str


SIZE = Quantity(_BYTES, "1GiB, 64MiB or 500MB", 1.0, 1024.0**6, "1 B to 1024 PiB")
TIME = Quantity(
    {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0},
    "120ms, 3ms or 1.5s",
    1e-9,
    1e6,
    "1 ns to 1000000 s",
)
TIME_OR_NONE = Quantity(TIME.units, "3ms, 500us or 0ms", 0.0, 1e6, "0 s to 1000000 s")
BANDWIDTH = Quantity(
    {
        **{f"{unit}/s": factor for unit, factor in _BYTES.items()},
        **{f"{letter}bit/s": 1000.0**power / 8 for power, letter in enumerate("kMGT", 1)},
    },
    "24GiB/s, 12.5GB/s or 100Gbit/s",
    1.0,
    1024.0**6,
    "1 B/s to 1024 PiB/s",
)


def read(option: str, text: str, quantity: Quantity) -> float:
    """Return a quantity in its base unit (bytes, seconds, bytes a second); UsageError if none."""
    shown = f"{option} {one_line(ascii(text), _MAX_SHOWN)}"
    found = _TEXT.fullmatch(text.strip(" "))
    if found is None:
        raise UsageError(f"{shown}: expected a number with its unit, such as {quantity.example}")
    factor = quantity.units.get(found[2])
    if factor is None:
        raise UsageError(
            f"{shown}: no such unit here; known: {', '.join(quantity.units)}, "
            f"as in {quantity.example}"
        )
    value = float(found[1]) * factor
    if not quantity.low <= value <= quantity.high:
        raise UsageError(f"{shown}: out of range, expected {quantity.bounds_text}")
    return value


def bytes_text(count: float) -> str:
    """Return bytes in the largest binary unit that they fill."""
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = 0
    while count >= 1024 and power < len(units) - 1:
        count /= 1024
        power += 1
    return f"{count:.4g} {units[power]}"


def bandwidth_text(bytes_per_s: float) -> str:
    """Return a bandwidth in the largest binary unit that it fills."""
    return f"{bytes_text(bytes_per_s)}/s"


def ms_text(seconds: float) -> str:
    """Return a time in milliseconds, with one digit behind the point."""
    return f"{seconds * 1e3:.1f} ms"

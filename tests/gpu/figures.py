"""Measured figures as rows of a table, and what the output of a bench says of its pace: pure."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

HEADER = "| what | bytes | median, ms | GB/s | ratio | bound | |\n|---|---|---|---|---|---|---|"

_OPENED = re.compile(r"=== Request seq=(\d+)")
_JUDGED = re.compile(r"\s*\[seq (\d+)\] CHECKSUM (MATCH OK|MISMATCH)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One thing that was measured in several rounds.

    `ratio` is its part of what `to` names, and must be at least `bound` where there is one.
    """

    what: str
    nbytes: int
    seconds: Sequence[float]
    ratio: float | None = None
    to: str = ""
    bound: float | None = None

    @property
    def median_s(self) -> float:
        """Return the median of all rounds."""
        return statistics.median(self.seconds)

    @property
    def bytes_per_s(self) -> float:
        """Return the rate of the median round."""
        return self.nbytes / self.median_s

    @property
    def misses(self) -> bool:
        """Tell whether it is below its bound."""
        return self.bound is not None and (self.ratio is None or self.ratio < self.bound)

    def row(self) -> str:
        """Return the row of the table."""
        ratio = "-" if self.ratio is None else f"{self.ratio:.2f} of {self.to}"
        bound = "-" if self.bound is None else f">= {self.bound:g}"
        rate = f"{self.bytes_per_s / 1e9:.2f}" if self.nbytes else "-"
        cells = (
            self.what,
            str(self.nbytes or "-"),
            f"{self.median_s * 1e3:.3f}",
            rate,
            ratio,
            bound,
            "TOO SLOW" if self.misses else "",
        )
        return f"| {' | '.join(cells)} |"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long each sequence of a `lmcache bench server` run took, and how many it verified."""

    sequence_s: tuple[float, ...]
    verified: int


def pace_of(lines: Sequence[tuple[float, str]]) -> Pace:
    """Read lines with the seconds at which they came (0.5.6).

    A sequence lasts from its first line to the next one's, and the last one to its verdict.
    """
    opened: dict[str, float] = {}
    ended: dict[str, float] = {}
    verified, current = 0, ""
    for at, text in lines:
        if head := _OPENED.match(text):
            if current:
                ended[current] = at
            current = head.group(1)
            opened[current] = at
        elif verdict := _JUDGED.match(text):
            verified += verdict.group(2) == "MATCH OK"
            ended[verdict.group(1)] = at
    walls = tuple(ended[seq] - at for seq, at in opened.items() if seq in ended)
    return Pace(sequence_s=walls, verified=verified)


def slower_than(figures: Sequence[Figure]) -> Iterator[str]:
    """Yield what missed its bound."""
    for figure in figures:
        if figure.misses:
            shown = "nothing" if figure.ratio is None else f"{figure.ratio:.2f}"
            yield f"{figure.what} reaches {shown} of {figure.to}, expected {figure.bound:g}"

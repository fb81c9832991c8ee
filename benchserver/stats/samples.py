"""Samples of one value over time, at equal distances, in bounded memory.

When there are too many, every second one is dropped, and later ones are kept half as often: a
week's run takes no more memory than an hour's, and its samples lie further apart.
"""

from __future__ import annotations

MOST_SAMPLES = 240


class Samples:
    """What was seen, and when."""

    def __init__(self, most: int = MOST_SAMPLES) -> None:
        self._most = most
        self._every = 1
        self._offered = 0
        self.kept: list[tuple[float, float]] = []

    def add(self, at_s: float, value: float) -> bool:
        """Take a sample; they come in the order of time.  Tells whether it is kept."""
        keep = self._offered % self._every == 0
        self._offered += 1
        if keep:
            self.kept.append((at_s, value))
        if len(self.kept) > self._most:
            del self.kept[1::2]
            self._every *= 2
        return keep

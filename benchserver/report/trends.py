"""The last minutes of a run as small charts of one row each: readings kept, and drawn.  Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from benchserver.monitor.snapshot import OperationNow, ResourceNow, Snapshot

KEPT = 120
"""Readings of each figure; the widest chart shows them all."""

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.-=+*%#"
"""For terminals whose encoding has no blocks."""

_STEADY = 0.02
"""What varies by less than this share of itself is drawn as a level line, in the middle."""

_WORK = "work"


class Trends:
    """The last readings of what a view draws."""

    def __init__(self) -> None:
        self._readings: dict[tuple[str, ...], deque[float | None]] = {}
        self._taken = 0

    def take(self, now: Snapshot) -> None:
        """Take a reading of everything; what is not known now is a gap."""
        found: dict[tuple[str, ...], float | None] = {(_WORK,): now.units_per_s}
        found |= {(one.name,): one.p99_ms for one in now.operations}
        found |= {(one.side, one.name): one.value for one in now.resources}
        for key, value in found.items():
            readings = self._readings.setdefault(key, deque(maxlen=KEPT))
            # What came later than others begins with a gap, so that all charts end now.
            readings.extend([None] * (min(self._taken, KEPT) - len(readings)))
            readings.append(value)
        for key in self._readings.keys() - found.keys():
            self._readings[key].append(None)
        self._taken += 1

    def work(self) -> Sequence[float | None]:
        """Return units of work a second."""
        return self._of((_WORK,))

    def latency(self, operation: OperationNow) -> Sequence[float | None]:
        """Return the p99s of an operation."""
        return self._of((operation.name,))

    def use(self, resource: ResourceNow) -> Sequence[float | None]:
        """Return how much of a resource was in use."""
        return self._of((resource.side, resource.name))

    def _of(self, key: tuple[str, ...]) -> Sequence[float | None]:
        return tuple(self._readings.get(key, ()))


def spark(values: Sequence[float | None], columns: int, blocks: str, *, from_zero: bool) -> str:
    """Draw the last `columns` values, a block each; a gap is a space.

    `from_zero`: the least block stands for nothing; otherwise for the least of the values.
    """
    shown = values[-columns:] if columns > 0 else ()
    known = [value for value in shown if value is not None]
    if not known:
        return ""
    high = max(known)
    low = min(0.0, min(known)) if from_zero else min(known)
    if high - low <= _STEADY * abs(high):
        level = blocks[0 if from_zero else len(blocks) // 2 - 1]
        return "".join(" " if value is None else level for value in shown)
    most, span = len(blocks) - 1, high - low
    # First the share: a span may be so small that nothing can be divided by it but what lies in it.
    return "".join(" " if v is None else blocks[round((v - low) / span * most)] for v in shown)

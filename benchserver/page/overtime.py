"""What happened when, read out of a report: cells of heat maps, percentiles, counts a slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchserver.page.reading import Document, as_number, figure, items, mapping, rows_of_numbers

_MOST_SLOTS = 4096
_MOST_ROWS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class OverTime:
    """The slots of a run: how long each is, and how many there are.

    `bounds_ms` are the ends of the rows, `cells` their counts by slot and row, of each series.
    `moved` are the bytes a slot of each series of transfers; `units` what was proven, failed and
    unproven in it.
    """

    slot_s: float
    slots: int
    bounds_ms: tuple[float, ...]
    cells: Mapping[str, Mapping[tuple[int, int], int]]
    moved: Mapping[str, Mapping[int, float]]
    units: Mapping[int, tuple[float, float, float]]

    def percentiles(self, name: str, percent: float) -> dict[int, float]:
        """Return the latency that so many per cent did not exceed, in ms, of each slot with any.

        It is the upper end of a row: too high by a fifth at most.
        """
        slots: dict[int, list[tuple[int, int]]] = {}
        for (slot, row), count in sorted(self.cells[name].items()):
            slots.setdefault(slot, []).append((row, count))
        found: dict[int, float] = {}
        for slot, rows in slots.items():
            left = sum(count for _, count in rows) * percent / 100
            for row, count in rows:
                left -= count
                if left <= 1e-9:
                    found[slot] = self.bounds_ms[row + 1]
                    break
        return found

    def counts(self, name: str) -> dict[int, int]:
        """Return how many ended in each slot with any."""
        found: dict[int, int] = {}
        for (slot, _), count in self.cells[name].items():
            found[slot] = found.get(slot, 0) + count
        return found


def over_time(document: Document) -> OverTime | None:
    """Return what a report says happened when; None: it does not say."""
    part = mapping(document, "over_time")
    slot_s, slots = figure(part, "slot_s"), figure(part, "slots")
    if not slot_s or not slots or slot_s <= 0 or not 0 < slots <= _MOST_SLOTS:
        return None
    bounds = _ascending(items(part, "bounds_ms"))
    number, rows = int(slots), len(bounds) - 1
    return OverTime(
        slot_s=slot_s,
        slots=number,
        bounds_ms=bounds,
        cells={
            str(name): cells
            for name, found in mapping(part, "series").items()
            if (cells := _cells(found, number, rows))
        },
        moved={
            str(name): {int(slot): nbytes for slot, nbytes in found if 0 <= slot < number}
            for name, rows_ in mapping(part, "bytes").items()
            if isinstance(rows_, list) and (found := rows_of_numbers(rows_, 2))
        },
        units={
            int(slot): (proven, failed, unproven)
            for slot, proven, failed, unproven in rows_of_numbers(items(part, "units"), 4)
            if 0 <= slot < number
        },
    )


def _ascending(found: Sequence[object]) -> tuple[float, ...]:
    bounds = [as_number(value) for value in found[: _MOST_ROWS + 1]]
    numbers = tuple(bound for bound in bounds if bound is not None and bound > 0)
    rising = all(low < high for low, high in pairwise(numbers))
    return numbers if rising and len(numbers) == len(bounds) else ()


def _cells(found: object, slots: int, rows: int) -> dict[tuple[int, int], int]:
    cells: dict[tuple[int, int], int] = {}
    for slot, row, count in rows_of_numbers(found if isinstance(found, list) else (), 3):
        if 0 <= slot < slots and 0 <= row < rows and count > 0:
            cells[int(slot), int(row)] = int(count)
    return cells

"""What happened when in a run, for JSON: latencies as a heat map, bytes moved, units concluded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchserver.check.verdict import Verdict
from benchserver.stats.measures import Measures
from benchserver.stats.overtime import Columns, lower_end_ms

_NS_PER_S = 1_000_000_000


def over_time_document(measures: Measures) -> dict[str, Any]:
    """Return columns of time, all of one length, and what lies in each of them."""
    heat = {one: columns for one, columns in measures.heat.items() if columns.counts_any}
    moved = {one: columns for one, columns in measures.moved.items() if columns.counts_any}
    everything = [*heat.values(), *moved.values(), measures.units]
    length_ns = max(columns.length_ns for columns in everything)
    counts = {one.name: columns.counts(length_ns) for one, columns in heat.items()}
    rows = [row for cells in counts.values() for _, row, _ in cells]
    first, last = min(rows, default=0), max(rows, default=-1)
    return {
        "slot_s": length_ns // _NS_PER_S,
        "slots": 1 + max(_last(columns, length_ns) for columns in everything),
        "bounds_ms": [lower_end_ms(row) for row in range(first, last + 2)] if rows else [],
        "series": {
            name: [[slot, row - first, count] for slot, row, count in cells]
            for name, cells in counts.items()
        },
        "bytes": {
            one.name: [[slot, nbytes] for slot, _, nbytes in columns.counts(length_ns)]
            for one, columns in moved.items()
        },
        "units": _units(measures.units.counts(length_ns)),
    }


def _last(columns: Columns, length_ns: int) -> int:
    return max((slot for slot, _, _ in columns.counts(length_ns)), default=-1)


def _units(counts: Iterable[tuple[int, int, int]]) -> list[list[int]]:
    """Return a row for each slot with any: the slot, and how many were proven, failed, unproven."""
    slots: dict[int, dict[int, int]] = {}
    for slot, verdict, count in counts:
        slots.setdefault(slot, {})[verdict] = count
    order = (Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN)
    return [[slot, *(row.get(one.value, 0) for one in order)] for slot, row in slots.items()]

"""What happened when, in bounded memory: columns of time, of which two become one when there are
too many.

A column is one second times a power of two long.  Columns of one origin have edges in common, so
what was counted by several can be shown side by side at the longest of their lengths.
"""

from __future__ import annotations

from benchserver.stats.logbuckets import bucket_of, lower_end

MOST_COLUMNS = 200
_COLUMN_NS = 1_000_000_000
HEAT_BITS = 2
"""Rows of a heat map: four to each power of two."""

_LEAST_NS = 1_000
"""A microsecond, as in all histograms; what is shorter lies in its row."""


def row_of(latency_ns: int) -> int:
    """Return the row of a heat map that a latency belongs to; longer ones, higher rows."""
    return bucket_of(max(latency_ns, _LEAST_NS), HEAT_BITS)


def lower_end_ms(row: int) -> float:
    """Return the least latency of a row."""
    return lower_end(row, HEAT_BITS) / 1e6


class Columns:
    """Counts by column of time and by row; what a row is, its owner knows."""

    def __init__(self, began_ns: int, *, most: int = MOST_COLUMNS) -> None:
        """Time is counted from there."""
        self._began_ns = began_ns
        self._most = most
        self._columns: dict[int, dict[int, int]] = {}
        self.length_ns = _COLUMN_NS
        """Of a column."""

    def add(self, now_ns: int, row: int, amount: int = 1) -> None:
        """Count something that happened now."""
        column, _ = self.column(now_ns)
        column[row] = column.get(row, 0) + amount

    def column(self, now_ns: int) -> tuple[dict[int, int], int]:
        """Return the counts by row that what happens now belongs to, and until when it does."""
        number = (now_ns - self._began_ns) // self.length_ns
        while number >= self._most:
            self._take(self.length_ns * 2)
            number = (now_ns - self._began_ns) // self.length_ns
        until_ns = self._began_ns + (number + 1) * self.length_ns
        return self._columns.setdefault(number, {}), until_ns

    @property
    def counts_any(self) -> bool:
        """Tell whether anything was counted."""
        return bool(self._columns)

    def merge(self, other: Columns) -> None:
        """Count all that another one of the same origin has counted."""
        longest = max(self.length_ns, other.length_ns)
        self._take(longest)
        for number, row, count in other.counts(longest):
            column = self._columns.setdefault(number, {})
            column[row] = column.get(row, 0) + count

    def counts(self, length_ns: int) -> list[tuple[int, int, int]]:
        """Return column, row and count in order, by columns of a length that is not shorter."""
        merged = _merged(self._columns, length_ns // self.length_ns)
        return [
            (number, row, count)
            for number, rows in sorted(merged.items())
            for row, count in sorted(rows.items())
        ]

    def _take(self, length_ns: int) -> None:
        self._columns = _merged(self._columns, length_ns // self.length_ns)
        self.length_ns = length_ns


def _merged(columns: dict[int, dict[int, int]], times: int) -> dict[int, dict[int, int]]:
    """Return columns so many times as long."""
    merged: dict[int, dict[int, int]] = {}
    for number, rows in columns.items():
        into = merged.setdefault(number // times, {})
        for row, count in rows.items():
            into[row] = into.get(row, 0) + count
    return merged

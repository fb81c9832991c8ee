"""A JSON report as a page reads it: values of the type that is expected, or nothing.

A report may be of an older version, of a run that could not begin, or of somebody else.  Whatever
is not there, or is not what it should be, is absent; nothing here raises for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Document = Mapping[str, Any]


def mapping(document: Any, *path: str) -> Document:
    """Return what stands at a path, or nothing."""
    for name in path:
        document = document.get(name) if isinstance(document, Mapping) else None
    return document if isinstance(document, Mapping) else {}


def items(document: Any, *path: str) -> Sequence[Any]:
    """Return the list at a path, or an empty one."""
    *parents, last = path
    found = mapping(document, *parents).get(last)
    return found if isinstance(found, list | tuple) else ()


def figure(document: Any, *path: str) -> float | None:
    """Return the number at a path, or None."""
    *parents, last = path
    return as_number(mapping(document, *parents).get(last))


def as_number(value: Any) -> float | None:
    """Return a finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def words(document: Any, *path: str) -> str:
    """Return the text at a path, or "": numbers as they are written."""
    *parents, last = path
    found = mapping(document, *parents).get(last)
    return "" if found is None or isinstance(found, Mapping | list) else str(found)


def rows_of_numbers(found: Sequence[Any], length: int) -> list[tuple[float, ...]]:
    """Return the rows of a list that are so many numbers each."""
    rows: list[tuple[float, ...]] = []
    for row in found:
        if isinstance(row, list | tuple) and len(row) == length:
            numbers = [as_number(cell) for cell in row]
            if None not in numbers:
                rows.append(tuple(cell for cell in numbers if cell is not None))
    return rows

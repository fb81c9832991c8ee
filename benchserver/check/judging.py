"""A history judged by the checks of its scenario; a check that fails itself proves nothing."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from benchserver.check.verdict import Check, Finding, unproven
from benchserver.errors import one_line
from benchserver.history import Record

R = TypeVar("R", bound=Record)

Judge = tuple[Check, Callable[[R], list[Finding]]]
"""A check, and what judges a history by it."""


def judge(record: R, judges: Iterable[Judge[R]]) -> list[Finding]:
    """Return every finding on one history."""
    return [finding for check, look in judges for finding in _findings(record, check, look)]


def evaluated(check: Check, place: str, look: Callable[[], Finding]) -> Finding:
    """Return what one look has found; `place` is what it looks at, if it fails itself."""
    try:
        return look()
    except Exception as error:  # noqa: BLE001  whatever it is, nothing was looked at
        return unproven(check, f"{place}: {_broken_text(error)}")


def _findings(record: R, check: Check, look: Callable[[R], list[Finding]]) -> list[Finding]:
    try:
        return look(record)
    except Exception as error:  # noqa: BLE001  whatever it is, nothing was looked at
        return [unproven(check, f"{record.label}: {_broken_text(error)}")]


def _broken_text(error: Exception) -> str:
    """Return what to say of a check that raised, in one line, with the place."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{'/'.join(Path(place.filename).parts[-2:])}:{place.lineno}"
    said = one_line(error, 200)
    return (
        f"the check itself failed, {type(error).__name__}{f': {said}' if said else ''} at {where}; "
        "that is a fault of bench-server"
    )

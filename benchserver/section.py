"""A part of a report that its owner makes: lines for people, a document for programs.

A scenario adds what makes its section, and it is made when the run has ended, in whatever way.
Reports print it and know nothing of what it says.  One that cannot be made is said to be missing,
and takes nothing else of the report with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from benchserver.errors import one_line
from benchserver.line import Line

REPORT_KEYS = frozenset(
    {
        "calls_attempted",
        "checks",
        "config",
        "exit_code",
        "format",
        "interrupted",
        "latency",
        "over_time",
        "probes",
        "replay",
        "sequences",
        "server",
        "throughput_gb_per_s",
        "verdict",
        "wall_s",
    }
)
"""What stands at the top of every JSON report, so that no section may be called so."""

RECORD_KEYS = frozenset({"run", "environment"})
"""What the record of a run stands under, beside those."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part: `key` is where its `document` stands in JSON, `title` and `lines` are its text."""

    key: str
    title: str
    lines: tuple[Line, ...]
    document: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Raise ValueError for what JSON cannot hold."""
        if self.key in REPORT_KEYS:
            raise ValueError(f"{self.key!r} is a key of every report")
        json.dumps(self.document, allow_nan=False)


def make_sections(
    makers: Iterable[Callable[[], Section]],
) -> tuple[tuple[Section, ...], tuple[str, ...]]:
    """Return the sections that could be made, in order, and a text on each that could not."""
    made, missing = dict[str, Section](), list[str]()
    for maker in makers:
        try:
            section = maker()
            if section.key in RECORD_KEYS:
                raise ValueError(f"{section.key!r} is the key of the record of a run")
            if section.key in made:
                raise ValueError(f"{section.key!r} is the key of two sections")
            made[section.key] = section
        except Exception as error:  # noqa: BLE001  whatever it is, the rest is reported
            missing.append(_missing_text(error))
    return tuple(made.values()), tuple(missing)


def _missing_text(error: Exception) -> str:
    said = one_line(error, 200)
    return (
        "a part of the report could not be made, "
        f"{type(error).__name__}{f': {said}' if said else ''}; that is a fault of bench-server"
    )

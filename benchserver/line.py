"""A line of output: a text and the name of its style.  How it is printed is not its concern."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchserver.history import Step

PLAIN, GOOD, BAD, FAINT = "plain", "good", "bad", "faint"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of output."""

    text: str
    style: str = PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """How reports tell of a scenario's work.

    `describe` returns the line for a step of the unit that a label names, or None for a step that
    has none.  `proven` is what is said of a unit in which nothing is wrong, if anything is; `units`
    what its counts count: "Sequences".
    """

    describe: Callable[[str, Step], Line | None]
    proven: str
    units: str

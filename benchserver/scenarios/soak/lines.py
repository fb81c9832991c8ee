"""How a soak reads: no line for a sequence in which all is well, one for what went wrong."""

from __future__ import annotations

from benchserver.history import Step
from benchserver.line import BAD, Line, Wording
from benchserver.scenarios.baseline import lines as baseline


def describe(label: str, step: Step) -> Line | None:
    """Return the line of the baseline for a step that went wrong."""
    line = baseline.describe(label, step)
    return line if line is not None and line.style == BAD else None


WORDING = Wording(describe=describe, proven="", units="Sequences")

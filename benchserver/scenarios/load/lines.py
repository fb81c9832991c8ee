"""How a load reads: one line now and then, and one for each request in which something is wrong."""

from __future__ import annotations

from benchserver.history import Step
from benchserver.line import Line, Wording
from benchserver.scenarios.load.records import ProgressRecord


def describe(label: str, step: Step) -> Line | None:
    """Return the line for how far the load has come."""
    if not isinstance(step, ProgressRecord):
        return None
    wrong = f", {step.failed} with something wrong" if step.failed else ""
    return Line(
        f"[{label}] {step.at_s:.0f} s: {step.done} requests{wrong}, {step.per_s:.1f}/s in the last "
        f"{step.interval_s:.0f} s"
    )


WORDING = Wording(describe=describe, proven="", units="Requests")

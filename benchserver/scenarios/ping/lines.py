"""How a ping reads."""

from __future__ import annotations

from benchserver.history import Outcome, Step
from benchserver.line import BAD, Line, Wording
from benchserver.scenarios.ping.records import TripRecord
from protocol.ops import Op


def describe(label: str, step: Step) -> Line | None:
    """Return the line for one round trip; `label` is what lines call its round."""
    if not isinstance(step, TripRecord):
        return None
    head = f"[{label}] {step.name + ':':<16}"
    if step.outcome is not Outcome.OK:
        return Line(f"{head}{step.reason}", BAD)
    answer = f"{step.answer} tokens" if step.name == Op.GET_CHUNK_SIZE.name else "answered"
    return Line(f"{head}{answer} ({step.latency_ns / 1e6:.2f} ms)")


WORDING = Wording(describe=describe, proven="OK", units="Rounds")

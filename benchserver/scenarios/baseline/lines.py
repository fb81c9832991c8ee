"""The steps of the baseline as lines of text: pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchserver.history import EndRecord, LookupRecord, Outcome, Step, TransferRecord
from benchserver.line import BAD, PLAIN, Line, Wording
from benchserver.scenarios.baseline.plan import Pass

_LOOKUP_NAMES: Mapping[str, str] = {
    Pass.COLD: "LOOKUP cold:  ",
    Pass.WARM: "LOOKUP warm:  ",
    Pass.PARTIAL: "LOOKUP again: ",
    Pass.SALT: "LOOKUP salt:  ",
    Pass.MODEL: "LOOKUP model: ",
    Pass.BOUNDS: "LOOKUP short: ",
}


def _lookup_line(label: str, step: LookupRecord) -> Line:
    name = _LOOKUP_NAMES[step.which]
    if step.outcome is not Outcome.OK:
        return Line(f"[{label}] {name}{step.reason}", BAD)
    text = f"[{label}] {name}{step.hits}/{step.total} chunks hit ({step.latency_ns / 1e6:.2f} ms)"
    if step.attempts > 1:
        text += f", visible after {step.lag_ns / 1e6:.1f} ms and {step.attempts} lookups"
    return Line(text, PLAIN if step.hits == step.expected else BAD)


def _transfer_line(label: str, step: TransferRecord) -> Line:
    verb = {"STORE": "stored", "RETRIEVE": "retrieved"}[step.name]
    rank = f" (rank {step.rank})" if step.rank else ""
    head = f"[{label}] {step.name + ':':<14}"
    if step.outcome is not Outcome.OK:
        return Line(f"{head}{step.reason}{rank}", BAD)
    skip = f", without the first {step.skip_tokens} tokens" if step.skip_tokens else ""
    return Line(f"{head}{step.chunks} chunks {verb}{skip} ({step.latency_ns / 1e6:.2f} ms){rank}")


def _end_line(label: str, step: EndRecord) -> Line | None:
    if step.outcome is Outcome.OK:
        return None
    return Line(f"[{label}] {step.name}: {step.reason}", BAD)


_STEP_LINES: Mapping[type, Callable[[str, Any], Line | None]] = {
    LookupRecord: _lookup_line,
    TransferRecord: _transfer_line,
    EndRecord: _end_line,
}


def describe(label: str, step: Step) -> Line | None:
    """Return the line for one step, or None for steps that have none of their own.

    `label` is what lines call the step's sequence: `seq=3`.
    """
    lines = _STEP_LINES.get(type(step))
    return None if lines is None else lines(label, step)


WORDING = Wording(describe=describe, proven="CHECKSUM MATCH OK", units="Sequences")

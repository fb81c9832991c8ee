"""What a run tells while it runs; `benchserver.report` has the implementations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from benchserver.check.verdict import Finding
from benchserver.history import SequenceRecord, Step


class Reporter(Protocol):
    """Receives a run's events, in order, on the event loop; must not block."""

    def note(self, text: str) -> None:
        """Say something about the set-up."""
        ...

    def step(self, label: str, step: Step) -> None:
        """Tell of one step of a sequence, when it ends."""
        ...

    def sequence(self, record: SequenceRecord, findings: Sequence[Finding]) -> None:
        """Tell of a finished sequence and its judgement."""
        ...

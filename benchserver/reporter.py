"""What a run tells while it runs; `benchserver.report` has the implementations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from benchserver.check.verdict import Finding
from benchserver.history import Step


class Reporter(Protocol):
    """Receives a run's events, in order, on the event loop; must not block."""

    def note(self, text: str) -> None:
        """Say something about the set-up."""
        ...

    def step(self, label: str, step: Step) -> None:
        """Tell of one step of a unit of work, a sequence for one, when it ends."""
        ...

    def concluded(self, label: str, findings: Sequence[Finding]) -> None:
        """Tell of a unit of work that has ended, and of its judgement."""
        ...

"""What a comparison comes to: its last line and its exit code.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from benchserver.compare.comparing import Comparison
from benchserver.compare.gates import Judged, Outcome
from benchserver.compare.matching import Difference
from benchserver.compare.reading import Side
from benchserver.compare.rows import Finding, change_text
from benchserver.errors import EXIT_CANNOT_TELL, EXIT_FAILED, EXIT_OK

_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """All that there is to tell."""

    sides: tuple[Side, Side]
    remarks: tuple[str, ...]
    allowed: tuple[Difference, ...]
    comparison: Comparison
    gates: tuple[Judged, ...]

    @property
    def exit_code(self) -> int:
        """Return 1 for a gate that is broken, 3 for one of which nobody can tell, else 0."""
        outcomes = {judged.outcome for judged in self.gates}
        if Outcome.BROKEN in outcomes:
            return EXIT_FAILED
        return EXIT_CANNOT_TELL if Outcome.CANNOT_TELL in outcomes else EXIT_OK

    @property
    def summary(self) -> str:
        """Return the last line."""
        parts = [self._shown_text()]
        for outcome in (Outcome.BROKEN, Outcome.CANNOT_TELL, Outcome.HELD):
            if count := sum(judged.outcome is outcome for judged in self.gates):
                parts.append(f"gates {outcome.value}: {count} of {len(self.gates)}")
        return f"COMPARE: {'; '.join(parts)} (exit {self.exit_code})"

    def _shown_text(self) -> str:
        rows = self.comparison.rows
        told = [row for row in rows if row.finding is not Finding.CANNOT_TELL]
        if not told:
            return (
                "cannot tell: a single run has no interval; make at least 3 a side, in turn, and "
                "this says how many show 5 %"
            )
        shown = [row for row in told if row.finding is not Finding.NONE]
        if not shown:
            return f"no difference shown in {_figures(len(told))}"
        shown.sort(key=lambda row: row.corrected_p or 0.0)
        named = ", ".join(
            f"{row.figure.name} {row.finding.value} "
            f"{change_text(row.figure, row.found.difference if row.found else 0.0)}"
            for row in shown[:_NAMED]
        )
        more = ", ..." if len(shown) > _NAMED else ""
        return f"a difference shown in {len(shown)} of {_figures(len(told))} ({named}{more})"


def _figures(count: int) -> str:
    return "1 figure" if count == 1 else f"{count} figures"

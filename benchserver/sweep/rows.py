"""What a sweep has found, a row a cell: means with their intervals, and what they are worth.  Pure.

A figure that one of the repetitions lacks is the mean of those that have it, and says of how many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchserver.sweep.cells import Cell
from benchserver.sweep.confidence import Estimate, estimate
from benchserver.sweep.figures import Figures, figures_of
from benchserver.sweep.running import Outcome

MAX_RATE = "max_rate_per_s"
"""The highest rate that kept the service level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One cell.  `wrong`: why it is not proven; `doubtful`: why its figures are not worth much."""

    cell: Cell
    repetitions: int
    figures: Mapping[str, Estimate]
    wrong: tuple[str, ...]
    doubtful: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Tell whether all is proven, and every figure valid as a measurement."""
        return not self.wrong and not self.doubtful


def rows_of(cells: Sequence[Cell], outcomes: Sequence[Outcome]) -> list[Row]:
    """Return a row for each cell of which something was run."""
    rows: list[Row] = []
    for cell in cells:
        ours = [outcome for outcome in outcomes if outcome.run.cell.key == cell.key]
        if ours:
            ours.sort(key=lambda outcome: outcome.run.repetition)
            rows.append(_row(cell, ours))
    return rows


def _row(cell: Cell, outcomes: Sequence[Outcome]) -> Row:
    read = [_figures(outcome) for outcome in outcomes]
    values: dict[str, list[float]] = {}
    for outcome, figures in zip(outcomes, read, strict=True):
        for name, value in figures.values.items() if figures is not None else ():
            values.setdefault(name, []).append(value)
        if outcome.found is not None and outcome.found.rate is not None:
            values.setdefault(MAX_RATE, []).append(outcome.found.rate)
    estimates = {name: estimate(found) for name, found in values.items()}
    pairs = list(zip(outcomes, read, strict=True))
    return Row(
        cell=cell,
        repetitions=len(outcomes),
        figures={name: found for name, found in estimates.items() if found is not None},
        wrong=tuple(text for o, _ in pairs for text in _wrong(o)),
        doubtful=tuple(text for o, f in pairs for text in _doubtful(o, f)),
        notes=tuple(_noted(o, o.found.why) for o in outcomes if o.found is not None),
    )


def _figures(outcome: Outcome) -> Figures | None:
    return figures_of(outcome.record.report) if outcome.record.report else None


def _wrong(outcome: Outcome) -> list[str]:
    record, texts = outcome.record, list[str]()
    for name in outcome.unproven:
        if name == record.name and record.trouble:
            texts.append(_noted(outcome, record.trouble))
        else:
            verdict = record.report.get("verdict", "none") if name == record.name else "not valid"
            texts.append(_noted(outcome, f"record {name} is not proven: verdict {verdict}"))
    return texts


def _doubtful(outcome: Outcome, figures: Figures | None) -> list[str]:
    found = outcome.found
    if found is not None:
        why = f"the search is not complete: {found.why}"
        return [] if found.complete else [_noted(outcome, why)]
    if figures is None or figures.valid:
        return []
    side = f"the limit was the {figures.limit}" if figures.limit else "no limit is known"
    told = [f"record {outcome.record.name} is no valid measurement", side, *figures.reasons]
    return [_noted(outcome, ": ".join(told))]


def _noted(outcome: Outcome, text: str) -> str:
    return f"{outcome.run.cell.label}, repetition {outcome.run.repetition}: {text}"

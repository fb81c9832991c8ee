"""A sweep: every run that has no record is made, in its order; or a search for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from benchserver.sweep.cells import RATE, Run
from benchserver.sweep.figures import figures_of
from benchserver.sweep.records import Record, Records
from benchserver.sweep.search import Found, Kept, Probe, found, judged, next_rate
from benchserver.sweep.slo import Condition

Make = Callable[[Run], Awaitable[Record]]
"""Makes a run."""

Tell = Callable[[Run, Record], object]
"""Says how a run went that was just made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The service level that is searched for; the rate where a search begins if a cell has none."""

    conditions: tuple[Condition, ...]
    first_rate: float
    max_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one repetition of a cell.

    `record` is what its row shows: the run, or that of the highest rate that kept the level, or
    else the last one.  `found`: what a search has found; None: none was asked for.
    """

    run: Run
    record: Record
    found: Found | None = None
    unproven: tuple[str, ...] = ()
    """The names of the records in which something is not proven."""


@dataclass(slots=True)
class Progress:
    """What a sweep has come to; complete or not."""

    planned: int
    outcomes: list[Outcome] = field(default_factory=list)
    made: int = 0
    resumed: int = 0

    @property
    def complete(self) -> bool:
        """Tell whether every run was made."""
        return len(self.outcomes) == self.planned


class Sweep:
    """All runs of a matrix."""

    def __init__(self, records: Records, make: Make, tell: Tell, level: Level | None) -> None:
        self._records = records
        self._make = make
        self._tell = tell
        self._level = level

    async def play(self, runs: Sequence[Run], progress: Progress) -> None:
        """Make the runs, and note each outcome; may be cancelled at any moment."""
        for run in runs:
            progress.outcomes.append(await self._outcome(run, progress))

    async def _outcome(self, run: Run, progress: Progress) -> Outcome:
        if self._level is not None:
            return await self._search(run, self._level, progress)
        record = await self._record(run, progress)
        return Outcome(run=run, record=record, unproven=_unproven([record]))

    async def _search(self, run: Run, level: Level, progress: Progress) -> Outcome:
        tried: list[Probe] = []
        records: dict[float, Record] = {}
        first = float(run.cell.load.get(RATE, level.first_rate))
        rate = next_rate(tried, first, level.max_rate)
        while rate is not None:
            at = replace(run, cell=run.cell.at_rate(rate))
            record = records[rate] = await self._record(at, progress)
            tried.append(_probe(rate, record, level.conditions))
            rate = next_rate(tried, first, level.max_rate)
        result = found(tried, level.max_rate)
        shown = records[tried[-1].rate if result.rate is None else result.rate]
        unproven = _unproven(list(records.values()))
        return Outcome(run=run, record=shown, found=result, unproven=unproven)

    async def _record(self, run: Run, progress: Progress) -> Record:
        """Return the record of a run, which is made if there is none."""
        if (record := self._records.read(run.name)) is not None:
            progress.resumed += 1
            return record
        record = await self._make(run)
        self._records.write(record)
        progress.made += 1
        self._tell(run, record)
        return record


def _probe(rate: float, record: Record, conditions: tuple[Condition, ...]) -> Probe:
    if record.trouble:
        probe = Probe(rate=rate, kept=Kept.NO_ANSWER, why=record.trouble)
    else:
        probe = judged(rate, figures_of(record.report), conditions)
    if probe.kept is Kept.NO_ANSWER:
        return replace(probe, why=f"record {record.name}: {probe.why}")
    return probe


def _unproven(records: Sequence[Record]) -> tuple[str, ...]:
    return tuple(record.name for record in records if not is_proven(record))


def is_proven(record: Record) -> bool:
    """Tell whether a run has proven all that it was asked for."""
    return not record.trouble and record.exit_code == 0 and figures_of(record.report).proven

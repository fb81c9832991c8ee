"""A sweep with runs that are made by a script: what is there is not made again; searches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchserver.sweep.cells import Run, runs_of
from benchserver.sweep.records import Record, Records, open_records
from benchserver.sweep.running import Level, Progress, Sweep, is_proven
from benchserver.sweep.slo import parse_slo
from tests.benchserver.sweep.reports import cell, record, report

RUNS = runs_of([cell(concurrency=n) for n in (1, 2, 3)], 2, 0)
LEVEL = Level(conditions=parse_slo(["retrieve.p99<50ms"]), first_rate=8.0, max_rate=100.0)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    with open_records(tmp_path, {"matrix": "m"}) as opened:
        yield opened


class Script:
    """Makes runs: by `able`, those of a server that keeps the level up to that rate."""

    def __init__(self, *, stop_before: int = 1000, able: float = 20.0, **bad: Any) -> None:
        self.made: list[Run] = []
        self.told: list[str] = []
        self._stop_before = stop_before
        self._able = able
        self._bad = bad

    async def make(self, run: Run) -> Record:
        if len(self.made) == self._stop_before:
            raise asyncio.CancelledError
        self.made.append(run)
        if "trouble" in self._bad:
            return record(run, trouble=self._bad["trouble"])
        rate = float(run.cell.load.get("rate", 0))
        late = rate > self._able
        return record(run, report(per_s=rate or 40.0, p99_ms=60.0 if late else 10.0, **self._bad))

    def tell(self, run: Run, found: Record) -> None:
        assert found.name == run.name
        self.told.append(run.name)


async def played(
    records: Records, script: Script, level: Level | None = None, runs: list[Run] = RUNS
) -> Progress:
    progress = Progress(planned=len(runs))
    await Sweep(records, script.make, script.tell, level).play(runs, progress)
    return progress


@pytest.mark.asyncio
async def test_every_run_in_order(records: Records) -> None:
    script = Script()
    progress = await played(records, script)
    assert script.made == [outcome.run for outcome in progress.outcomes] == RUNS
    assert script.told == [run.name for run in RUNS]
    assert progress.complete
    assert (progress.made, progress.resumed) == (6, 0)
    assert all(not outcome.unproven for outcome in progress.outcomes)


@pytest.mark.asyncio
async def test_what_is_there_is_not_made_again(records: Records) -> None:
    first, progress = Script(stop_before=4), Progress(planned=len(RUNS))
    with pytest.raises(asyncio.CancelledError):
        await Sweep(records, first.make, first.tell, None).play(RUNS, progress)
    assert not progress.complete
    assert [outcome.run for outcome in progress.outcomes] == RUNS[:4]
    second = Script()
    resumed = await played(records, second)
    assert second.made == RUNS[4:]
    assert (resumed.made, resumed.resumed, resumed.complete) == (2, 4, True)
    assert [outcome.run for outcome in resumed.outcomes] == RUNS


@pytest.mark.asyncio
async def test_a_search_a_run(records: Records) -> None:
    script = Script()
    progress = await played(records, script, LEVEL, RUNS[:2])
    rates = [float(run.cell.load["rate"]) for run in script.made]
    assert rates == [8.0, 16.0, 32.0, 24.0, 20.0, 22.0, 21.0] * 2
    for outcome in progress.outcomes:
        assert outcome.found is not None
        assert (outcome.found.rate, outcome.found.complete) == (20.0, True)
        assert outcome.record.report["load"]["rate_achieved_per_s"] == 20.0
        assert not outcome.unproven
    again = Script()
    assert (await played(records, again, LEVEL, RUNS[:2])).outcomes == progress.outcomes
    assert not again.made


@pytest.mark.asyncio
async def test_a_search_begins_at_the_rate_of_its_cell(records: Records) -> None:
    script = Script()
    await played(records, script, LEVEL, [Run(cell=cell(rate=19), repetition=1)])
    assert script.made[0].cell.load["rate"] == "19"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"valid": False, "limit": "harness"}, "the limit was the harness"),
        ({"verdict": "unknown"}, "the run is not proven"),
        ({"trouble": "the server ended"}, "the server ended"),
    ],
)
async def test_a_run_that_says_nothing_ends_its_search(
    records: Records, bad: dict[str, Any], why: str
) -> None:
    script = Script(**bad)
    (outcome,) = (await played(records, script, LEVEL, RUNS[:1])).outcomes
    assert len(script.made) == 1
    assert outcome.found is not None
    assert (outcome.found.rate, outcome.found.complete) == (None, False)
    assert why in outcome.found.why
    assert f"record {outcome.record.name}: " in outcome.found.why
    assert bool(outcome.unproven) is ("limit" not in bad)


def test_what_is_proven() -> None:
    assert is_proven(record(RUNS[0]))
    assert not is_proven(record(RUNS[0], trouble="x"))
    assert not is_proven(record(RUNS[0], report(verdict="invalid")))

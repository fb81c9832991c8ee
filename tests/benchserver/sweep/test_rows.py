"""Rows: means of repetitions, and what is not proven or not valid, by name."""

from __future__ import annotations

from benchserver.sweep.cells import Run
from benchserver.sweep.confidence import Estimate
from benchserver.sweep.rows import MAX_RATE, rows_of
from benchserver.sweep.running import Outcome
from benchserver.sweep.search import Found
from tests.benchserver.sweep.reports import cell, record, report

CELLS = [cell(concurrency=1), cell(concurrency=2)]
RUNS = [Run(cell=CELLS[0], repetition=n) for n in (2, 1)]


def outcome(run: Run, per_s: float = 40.0) -> Outcome:
    return Outcome(run=run, record=record(run, report(per_s=per_s)))


def test_means_of_the_runs_of_a_cell() -> None:
    (row,) = rows_of(CELLS, [outcome(RUNS[0], 41.0), outcome(RUNS[1], 39.0)])
    assert row.cell == CELLS[0]
    assert row.repetitions == 2
    assert row.figures["requests_per_s"] == Estimate(mean=40.0, half_width=12.706, count=2)
    assert row.figures["retrieve.p99"] == Estimate(mean=12.0, half_width=0.0, count=2)
    assert row.good


def test_what_is_wrong_is_said_by_name() -> None:
    bad = record(RUNS[1], report(verdict="invalid"))
    none = record(RUNS[0], trouble="the server ended")
    (row,) = rows_of(
        CELLS,
        [
            Outcome(run=RUNS[0], record=none, unproven=(none.name,)),
            Outcome(run=RUNS[1], record=bad, unproven=(bad.name,)),
        ],
    )
    assert not row.good
    assert row.wrong == (
        f"concurrency=1, repetition 1: record {bad.name} is not proven: verdict invalid",
        "concurrency=1, repetition 2: the server ended",
    )
    assert row.figures["requests_per_s"].count == 1


def test_what_is_no_measurement() -> None:
    late = record(RUNS[0], report(valid=False, limit="harness"))
    (row,) = rows_of(CELLS, [Outcome(run=RUNS[0], record=late)])
    assert not row.good
    assert row.doubtful == (
        f"concurrency=1, repetition 2: record {late.name} is no valid measurement: "
        "the limit was the harness: late",
    )


def test_searches() -> None:
    def searched(run: Run, *, complete: bool, valid: bool = True) -> Outcome:
        found = Found(rate=20.0, why="not at 21/s: slow", complete=complete, tried=7)
        return Outcome(run=run, record=record(run, report(valid=valid)), found=found)

    (row,) = rows_of(CELLS, [searched(RUNS[0], complete=True, valid=False)])
    assert row.good
    assert row.figures[MAX_RATE].mean == 20.0
    assert row.notes == ("concurrency=1, repetition 2: not at 21/s: slow",)
    (row,) = rows_of(CELLS, [searched(RUNS[0], complete=False)])
    assert row.doubtful == (
        "concurrency=1, repetition 2: the search is not complete: not at 21/s: slow",
    )


def test_a_probe_that_proves_nothing_counts_though_another_is_shown() -> None:
    found = Found(rate=20.0, why="ended", complete=False, tried=2)
    shown = record(RUNS[0])
    (row,) = rows_of(
        CELLS, [Outcome(run=RUNS[0], record=shown, found=found, unproven=("other-2",))]
    )
    assert row.wrong == (
        "concurrency=1, repetition 2: record other-2 is not proven: verdict not valid",
    )

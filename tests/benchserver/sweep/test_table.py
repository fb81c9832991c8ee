"""The table of a sweep: text, JSON, CSV, and the last line."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

from benchserver.sweep.cells import Run
from benchserver.sweep.rows import rows_of
from benchserver.sweep.running import Outcome, Progress
from benchserver.sweep.search import Found
from benchserver.sweep.table import Told, csv_table, document, run_line, summary, text_table
from tests.benchserver.sweep.reports import cell, record, report

CELLS = [cell(concurrency=1, tier=""), cell(concurrency=2, tier="--l2 x")]


def told(
    *per_s: tuple[float, ...], found: Found | None = None, missing: int = 0, **bad: object
) -> Told:
    """Return a sweep in which each cell had these rates, and the last run was `bad`."""
    outcomes = []
    for one, rates in zip(CELLS, per_s, strict=True):
        for number, rate in enumerate(rates, 1):
            run = Run(cell=one, repetition=number)
            outcomes.append(Outcome(run=run, record=record(run, report(per_s=rate)), found=found))
    if bad:
        run = outcomes[-1].run
        spoilt = record(run, report(**bad))  # type: ignore[arg-type]
        unproven = (run.name,) if "verdict" in bad else ()
        outcomes[-1] = Outcome(run=run, record=spoilt, unproven=unproven)
    progress = Progress(planned=len(outcomes) + missing, outcomes=outcomes, made=len(outcomes))
    levels = () if found is None else ("retrieve.p99<50ms",)
    return Told(rows=rows_of(CELLS, outcomes), progress=progress, seed=3, levels=levels)


def test_one_repetition() -> None:
    lines = text_table(told((40.0,), (1234567.0,)))
    head = lines[0].split()
    assert head[:4] == ["concurrency", "tier", "requests/s", "GB/s"]
    assert lines[0].split()[-5:] == ["hit", "ideal", "verified", "proven", "valid"]
    figures = ["40", "2", "5", "12", "5", "12", "5", "12", "50.0%", "75.0%", "100.0%"]
    assert lines[1].split() == ["1", '""', *figures, "yes", "yes"]
    assert lines[2].split()[3] == "1234567"
    assert lines[3:] == ["", "One repetition: no confidence interval (--repetitions 3 gives one)."]


def test_several_repetitions() -> None:
    lines = text_table(told((39.0, 40.0, 41.0), (30.0, 30.0, 30.0)))
    assert "40±2.5" in lines[1]
    assert "30±0" in lines[2]
    assert lines[-1] == "Figures are means of up to 3 repetitions, with their 95 % t-interval."


def test_a_search() -> None:
    found = Found(rate=20.0, why="not at 21/s: slow", complete=True, tried=7)
    lines = text_table(told((20.0,), (20.0,), found=found))
    assert lines[0].split()[2:4] == ["max", "rate/s"]
    assert "Searched: the highest rate that keeps retrieve.p99<50ms." in lines
    assert '  concurrency=1 tier="", repetition 1: not at 21/s: slow' in lines


def test_what_is_not_good_is_said() -> None:
    lines = text_table(told((40.0,), (40.0,), verdict="invalid"))
    assert lines[2].split()[-2:] == ["NO", "yes"]
    assert lines[-1].startswith("NOT PROVEN  concurrency=2 tier=--l2 x, repetition 1: record ")
    lines = text_table(told((40.0,), (40.0,), valid=False, limit="harness"))
    assert lines[2].split()[-2:] == ["yes", "NO"]
    assert lines[-1].startswith("NOT VALID   concurrency=2")


def test_the_last_line() -> None:
    good = told((40.0,), (40.0,))
    assert good.good
    assert summary(good) == (
        "SWEEP: PASS, 2 cells, 2 of 2 runs, all proven, all valid as measurements (exit 0)"
    )
    for bad, part in (
        (told((40.0,), (40.0,), verdict="invalid"), "1 not proven"),
        (told((40.0,), (40.0,), valid=False, limit=""), "1 not valid as a measurement"),
        (told((40.0,), (40.0,), missing=1), "interrupted: the same command goes on"),
    ):
        assert not bad.good
        runs = "2 of 3" if "interrupted" in part else "2 of 2"
        assert summary(bad) == f"SWEEP: FAIL, 2 cells, {runs} runs: {part} (exit 1)"
    nothing = Told(rows=[], progress=Progress(planned=2), seed=0, levels=())
    assert not nothing.good
    assert text_table(nothing)[0].startswith("requests/s")


def test_json() -> None:
    found = document(told((39.0, 41.0), (30.0, 30.0)))
    assert json.loads(json.dumps(found)) == found
    assert (found["ok"], found["complete"], found["seed"]) == (True, True, 3)
    assert found["interval"] == "95 % t-interval"
    first = found["cells"][0]
    assert first["key"] == CELLS[0].key
    assert first["figures"]["requests_per_s"] == {"mean": 40.0, "half_width": 12.706, "count": 2}
    assert [run["values"]["requests_per_s"] for run in first["runs"]] == [39.0, 41.0]
    assert [run["exit_code"] for run in first["runs"]] == [0, 0]


def test_csv() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_table(told((39.0, 41.0), (30.0,))))))
    assert [row["concurrency"] for row in rows] == ["1", "2"]
    assert [row["tier"] for row in rows] == ["", "--l2 x"]
    assert [row["requests_per_s"] for row in rows] == ["40.0", "30.0"]
    assert [row["requests_per_s.half_width"] for row in rows] == ["12.706", ""]
    assert [row["proven"] for row in rows] == ["True", "True"]


def test_the_line_of_a_run() -> None:
    run = Run(cell=CELLS[0], repetition=2)
    progress = Progress(planned=3, made=1)
    head = 'run 1 (concurrency=1 tier="", repetition 2): '
    assert run_line(run, record(run), progress) == (f"{head}40 requests/s, proven, valid, in 2.5 s")
    bad = report(verdict="unknown", valid=False, limit="server")
    assert run_line(run, record(run, bad), progress) == (
        f"{head}40 requests/s, NOT PROVEN (unknown), NOT VALID as a measurement, limit server, "
        "in 2.5 s"
    )
    failed = replace(record(run, trouble="the server ended"), exit_code=None)
    assert run_line(run, failed, progress) == f"{head}the server ended"

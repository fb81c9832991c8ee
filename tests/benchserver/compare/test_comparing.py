"""Runs to rows: drawn runs without a difference, with one, and what is left out.

The drawn figures are log-normal, drift, and move together within a run, as those of runs do.
"""

from __future__ import annotations

import math
import random

import pytest

from benchserver.compare.comparing import Comparison, compare
from benchserver.compare.estimate import MIN_PAIRS
from benchserver.compare.matching import Cell
from benchserver.compare.rows import ALL_CELLS, Finding
from tests.benchserver.compare.reports import report, run, run_of

FIGURES = ("retrieve", "store", "lookup", "service")


def drawn_cell(drawn: random.Random, runs: int, slower: float, scatter: float = 0.03) -> Cell:
    """Return a cell of runs in turn; RETRIEVE of B is so much slower."""
    sides: tuple[list[object], list[object]] = ([], [])
    drift = 0.0
    for number in range(2 * runs):
        drift += drawn.gauss(0.0, 0.02)
        b = number % 4 in (1, 2)
        made, shared = report(), drawn.gauss(0.0, scatter)
        for name in FIGURES:
            value = 10 * math.exp(drift + shared + drawn.gauss(0.0, scatter))
            value *= 1 + slower if b and name == "retrieve" else 1
            latency = dict.fromkeys(("p50_ms", "p90_ms", "mean_ms"), value)
            made["latency"][name.upper()] = {"count": 1000, **latency}
        sides[b].append(run_of(made, f"run {number}", float(number)))
    return Cell("", tuple(sides[0]), tuple(sides[1]))  # type: ignore[arg-type]  # runs


def shown(comparison: Comparison) -> set[str]:
    """Return the figures with a difference."""
    findings = (Finding.WORSE, Finding.BETTER, Finding.CHANGED)
    return {row.figure.name for row in comparison.rows if row.finding in findings}


@pytest.mark.parametrize("runs", [3, 6])
def test_no_false_alarm_and_no_deafness(runs: int) -> None:
    """By 5 % of all comparisons at most; the seeds are fixed, so this does not flicker."""
    drawn, alarms, found, tries = random.Random(runs), 0, 0, 40
    for _ in range(tries):
        alarms += bool(shown(compare([drawn_cell(drawn, runs, 0.0)], ("*.p50", "*.mean"), 0)))
        some = shown(compare([drawn_cell(drawn, runs, 0.5)], ("*.p50", "*.mean"), 0))
        found += "retrieve.p50" in some
    assert alarms <= 2
    assert found >= (tries * 0.95 if runs == 6 else tries * 0.5)


def test_pairs_and_two_samples_are_told() -> None:
    drawn = random.Random(1)
    assert compare([drawn_cell(drawn, MIN_PAIRS, 0.0)], (), 0).groups[0].pairs
    assert not compare([drawn_cell(drawn, MIN_PAIRS - 1, 0.0)], (), 0).groups[0].pairs


def test_values_of_both_sides_are_geometric_means() -> None:
    cell = Cell("", (run(retrieve_ms=8.0), run(retrieve_ms=2.0)), (run(), run()))
    (row,) = compare([cell], ("retrieve.p50",), 0).rows
    assert row.a == pytest.approx(4.0)
    assert row.b == pytest.approx(10.0)
    assert row.found is not None
    assert math.exp(row.found.difference) == pytest.approx(2.5)
    assert row.corrected_p == row.found.p_value(), "it was looked at alone"


def test_more_figures_are_judged_more_carefully() -> None:
    cell = drawn_cell(random.Random(5), 4, 0.2)
    (alone,) = compare([cell], ("retrieve.p50",), 0).rows
    beside = next(row for row in compare([cell], (), 0).rows if row.figure == alone.figure)
    assert alone.found == beside.found
    assert (beside.corrected_p or 0) > (alone.corrected_p or 0)
    assert (beside.more_runs or 0) > (alone.more_runs or 0)


def test_what_one_run_lacks_is_left_out_by_name() -> None:
    few = run("few.json", count=60)
    comparison = compare([Cell("", (run(), few), (run(), run()))], ("retrieve.p*",), 0)
    assert {row.figure.name for row in comparison.rows} == {"retrieve.p50", "retrieve.p90"}
    assert "retrieve.p99: 60 calls a run, and it needs 100, in few.json" in comparison.left_out
    bare = report()
    del bare["latency"]["RETRIEVE"]
    cell = Cell("", (run(), run_of(bare, "bare.json")), (run(), run()))
    assert "retrieve.p50: it is not in bare.json" in compare([cell], (), 0).left_out


def test_one_run_a_side_is_shown_and_tells_nothing() -> None:
    (row,) = compare([Cell("", (run(),), (run(),))], ("retrieve.p50",), 0).rows
    assert row.a == pytest.approx(10.0)
    assert (row.found, row.finding) == (None, Finding.CANNOT_TELL)


def test_cells_by_themselves_and_together() -> None:
    cells = [
        Cell(f"rate={rate}", (run(retrieve_ms=float(rate)),), (run(retrieve_ms=rate * 1.2),))
        for rate in (10, 20, 40, 80, 160)
    ]
    rows = compare(cells, ("retrieve.p50",), 0).rows
    assert [row.cell for row in rows] == [*(cell.label for cell in cells), ALL_CELLS]
    assert rows[-1].finding is Finding.WORSE
    assert rows[-1].found is not None
    assert math.exp(rows[-1].found.difference) == pytest.approx(1.2)

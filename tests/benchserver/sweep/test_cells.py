"""Cells: what decides their key; the order of runs."""

from __future__ import annotations

from dataclasses import replace

from benchserver.sweep.cells import Run, alike, digest, runs_of, text_of
from tests.benchserver.sweep.reports import cell

CELLS = [cell(concurrency=n) for n in range(1, 7)]


def test_the_key_is_of_what_decides_a_cell() -> None:
    one = cell(concurrency=1, rate=5)
    same = replace(one, load=dict(reversed(list(one.load.items()))), varied={})
    assert one.key == same.key
    assert len(one.key) == 16
    others = (cell(concurrency=2, rate=5), replace(one, server=("x",)), one.at_rate(6.0))
    assert len({one.key, *(other.key for other in others)}) == 4


def test_a_rate_is_an_option_of_the_load() -> None:
    assert cell(concurrency=1).at_rate(12.5).load["rate"] == "12.5"
    assert cell(concurrency=1).at_rate(12.5).label == "concurrency=1 rate=12.5"
    assert cell(concurrency=1).at_rate(8.0).load["rate"] == "8"


def test_labels() -> None:
    assert cell(concurrency=1, workload="unique").label == "concurrency=1 workload=unique"
    assert cell().label == "all"
    assert [text_of(value) for value in (True, 2, 2.0, "x")] == ["true", "2", "2", "x"]


def test_every_run_once_in_an_order_of_the_seed() -> None:
    runs = runs_of(CELLS, 3, 7)
    in_order = [Run(cell=one, repetition=n) for n in (1, 2, 3) for one in CELLS]
    assert sorted(run.name for run in runs) == sorted(run.name for run in in_order)
    assert runs != in_order
    assert runs == runs_of(CELLS, 3, 7)
    assert runs != runs_of(CELLS, 3, 8)


def test_more_repetitions_keep_the_order_of_the_others() -> None:
    few, more = runs_of(CELLS, 2, 7), runs_of(CELLS, 3, 7)
    assert [run for run in more if run.repetition < 3] == few


def test_no_two_loads_have_one_seed() -> None:
    seeds = {run.seed(s) for run in runs_of(CELLS, 3, 0) for s in (0, 1)}
    assert len(seeds) == 36


def test_cells_that_are_alike() -> None:
    assert alike(CELLS) is None
    assert alike([*CELLS, cell(concurrency=2)]) == (CELLS[1], cell(concurrency=2))


def test_the_digest_knows_no_order() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 2, "b": 1})

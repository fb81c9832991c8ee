"""One run: the load as a child process, its deadline, its record; a server that does not start."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchserver.sweep.cells import Cell, Run, Value
from benchserver.sweep.launch import (
    STARTING_S,
    UNKNOWN_S,
    Launching,
    deadline_s,
    has_end,
    make,
    options_words,
    planned_s,
)
from benchserver.sweep.records import Record, Records, open_records
from benchserver.sweep.server import Serving
from benchserver.sweep.template import words_of
from tests.benchserver.sweep.processes import PYTHON, WITHIN_S
from tests.benchserver.sweep.reports import cell

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
HOW = Launching(
    load=(sys.executable, "-m", "tests.benchserver.sweep.fakeload"),
    environment=ENVIRONMENT,
    serving=Serving(environment=ENVIRONMENT, ready_s=WITHIN_S, stop_s=lambda: WITHIN_S),
    seed=7,
    cell_timeout_s=WITHIN_S,
)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    with open_records(tmp_path, {"matrix": "m"}) as opened:
        yield opened


async def made(records: Records, one: Cell, how: Launching = HOW) -> Record:
    return await make(Run(cell=one, repetition=2), records, how)


@pytest.mark.asyncio
async def test_a_good_run(records: Records) -> None:
    one = cell(workload="good")
    run = Run(cell=one, repetition=2)
    record = await made(records, one)
    assert (record.exit_code, record.trouble, record.server) == (0, "", ())
    assert record.report["verdict"] == "valid"
    words = record.report["words"]
    assert words["rpc-url"] == "tcp://localhost:5555"
    assert words["seed"] == str(record.seed) == str(run.seed(7))
    assert words["duration"] == "2"
    assert "--workload=good" in record.command
    assert list(records.folder.rglob("*.json")) == [records.folder / "manifest.json"]
    assert "workload good" in records.log(run.name, "load").read_text()


@pytest.mark.asyncio
async def test_a_seed_of_the_matrix_stays(records: Records) -> None:
    record = await made(records, cell(seed=5))
    assert (record.seed, record.report["words"]["seed"]) == (5, "5")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("workload", "code", "trouble"),
    [
        ("bad", 1, ""),
        ("liar", 1, "the load ended with code 1, and its report says 0"),
        ("silent", 3, "the load ended with code 3: it wrote no report; it said: workload silent"),
    ],
)
async def test_what_is_not_good(records: Records, workload: str, code: int, trouble: str) -> None:
    record = await made(records, cell(workload=workload))
    assert record.exit_code == code
    assert record.trouble.startswith(trouble)
    assert bool(record.trouble) is bool(trouble)
    assert bool(record.report) is (workload != "silent")


@pytest.mark.asyncio
async def test_a_load_that_takes_too_long_is_ended(records: Records) -> None:
    record = await made(records, cell(workload="wait"), replace(HOW, cell_timeout_s=1.0))
    assert record.trouble == "the load was ended: it took longer than 1 s (--cell-timeout)"
    assert record.exit_code is not None
    assert not record.report


@pytest.mark.asyncio
async def test_a_run_that_is_cancelled_has_no_record(records: Records) -> None:
    log = records.log(Run(cell=cell(workload="wait"), repetition=2).name, "load")
    task = asyncio.create_task(made(records, cell(workload="wait")))
    while not (log.exists() and "waiting" in log.read_text()):
        await asyncio.wait([task], timeout=0.02)
        assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.asyncio
async def test_the_load_is_told_where_its_server_is(records: Records) -> None:
    words = words_of("serve --l1-size-gb 0.1")
    record = await made(records, Cell(load={"workload": "good"}, server=words, varied={}))
    assert record.trouble == ""
    asked = record.report["words"]
    port, http_port = record.server[-3], record.server[-1]
    assert asked["rpc-url"] == f"tcp://127.0.0.1:{port}"
    assert asked["url"] == f"http://127.0.0.1:{http_port}"


@pytest.mark.asyncio
async def test_a_server_that_does_not_start_is_the_record(records: Records) -> None:
    words = (*PYTHON, "raise SystemExit('no memory')", "{rpc_port}")
    record = await made(records, Cell(load={}, server=words, varied={}))
    assert record.exit_code is None
    assert "the server ended before it was ready, exit code 1; it said: no memory" in record.trouble


@pytest.mark.parametrize(
    ("load", "planned", "ends"),
    [
        ({"duration": 5}, 5.0, True),
        ({"duration": 5, "warmup": 1.5}, 6.5, True),
        ({"rate": "10:40:10", "step-duration": 3}, 12.0, True),
        ({"rate": "40:10:-10"}, 40.0, True),
        ({"requests": 100, "rate": 5}, 20.0, True),
        ({"requests": 100}, None, True),
        ({"workload": "trace:x.jsonl"}, None, True),
        ({"rate": 5}, None, False),
        ({}, None, False),
    ],
)
def test_how_long_a_load_goes_on(load: dict[str, Value], planned: float | None, ends: bool) -> None:
    assert planned_s(load) == planned
    assert has_end(load) is ends
    computed = STARTING_S + (UNKNOWN_S if planned is None else planned)
    assert deadline_s(load, None) == computed
    assert deadline_s(load, 3.0) == 3.0


def test_options_as_words() -> None:
    load: dict[str, Value] = {"rate": 2.5, "no-http": True, "use-mla": False, "workload": "-x y"}
    assert options_words(load) == ["--rate=2.5", "--no-http", "--workload=-x y"]

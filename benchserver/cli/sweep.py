"""`bench-server sweep`: a matrix to cells, each a load in a process of its own, one table."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchserver.cli.asked import build_config
from benchserver.cli.clickoptions import with_options
from benchserver.cli.group import OneLineCommand
from benchserver.cli.output import Output
from benchserver.cli.scenario import scenario_command
from benchserver.cli.tomlfile import read_toml
from benchserver.ending import Ending
from benchserver.errors import EXIT_FAILED, EXIT_OK, FatalError, UsageError, one_line
from benchserver.options.option import options_in
from benchserver.scenarios.load.command import COMMAND as LOAD
from benchserver.sweep.options import SWEEP

if TYPE_CHECKING:
    from benchserver.sweep.cells import Cell, Run
    from benchserver.sweep.launch import Launching
    from benchserver.sweep.matrix import Matrix
    from benchserver.sweep.records import Record, Records
    from benchserver.sweep.running import Level, Progress
    from benchserver.sweep.table import Told

_TOKEN = "BENCH_SERVER_HTTP_TOKEN"
"""The one variable of ours that a load gets: a secret has no other way to it."""

_STOP_S = 10.0
_ASKED_STOP_S = 0.8
"""What a server gets to end; less once a signal has come: all is over within five seconds."""


@click.command(cls=OneLineCommand)
@click.argument("matrix", metavar="MATRIX.toml", required=False)
@with_options(SWEEP, command="sweep")
@click.pass_obj
def sweep(ending: Ending, /, matrix: str | None, **options: Any) -> int:
    """Make a load for each cell of a matrix, and one table of all; begun again, it goes on.

    Exit code 0: everything is proven, and valid as a measurement; 1: something is not; 2: wrong
    usage.
    """
    from benchserver.sweep.records import open_records

    if matrix is None:
        raise UsageError("a sweep needs its matrix: bench-server sweep MATRIX.toml")
    asked = _asked(matrix, options)
    folder = Path(options["out"] or f"{Path(matrix).stem}.sweep")
    with open_records(folder, _manifest(asked, options)) as records:
        return _run(asked, records, options, ending)


@dataclass(frozen=True, slots=True)
class _Asked:
    matrix: Matrix
    level: Level | None


def _asked(path: str, options: Mapping[str, Any]) -> _Asked:
    """Return what is asked for; UsageError, before anything is started, if it cannot work."""
    from benchserver.sweep.matrix import Overrides, parse_matrix
    from benchserver.sweep.running import Level
    from benchserver.sweep.search import FIRST_RATE
    from benchserver.sweep.slo import parse_slo

    conditions = parse_slo(options["slo"])
    document = read_toml(path)
    rows = {option.file_key: option for option in options_in(LOAD.tables)}
    overrides = Overrides(command=options["server_cmd"] or "", repetitions=options["repetitions"])
    try:
        matrix = parse_matrix(document, rows, overrides)
        level = None
        if conditions:
            level = Level(
                conditions=conditions, first_rate=FIRST_RATE, max_rate=options["max_rate"]
            )
        for cell in matrix.cells:
            _check(cell, level)
    except UsageError as error:
        raise UsageError(f"{one_line(path, 120)}: {error}") from error
    return _Asked(matrix, level)


def _check(cell: Cell, level: Level | None) -> None:
    """Raise UsageError for a cell that no load or server can be started for."""
    from benchserver.sweep.cells import RATE
    from benchserver.sweep.launch import has_end, options_words

    place = f"cell {one_line(cell.label, 160)}"
    if level is not None:
        rate = cell.load.get(RATE, level.first_rate)
        if RATE in cell.varied or isinstance(rate, str):
            raise UsageError(f"{place}: --slo searches the rate, which begins at one number")
        cell = cell.at_rate(rate)
    if not has_end(cell.load):
        raise UsageError(f"{place}: it has no end: give duration or requests in [load]")
    if cell.server and shutil.which(cell.server[0]) is None:
        raise UsageError(f"{place}: there is no command {one_line(cell.server[0], 120)}")
    try:
        ctx = scenario_command(LOAD).make_context(LOAD.name, options_words(cell.load))
        build_config(LOAD, ctx, ctx.params)
    except click.UsageError as error:
        raise UsageError(f"{place}: {one_line(error.format_message())}") from error
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from error


def _manifest(asked: _Asked, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a directory belongs to; more repetitions of the same cells are the same sweep."""
    from benchserver.sweep.cells import digest
    from benchserver.sweep.records import FORMAT

    level = [condition.text for condition in asked.level.conditions] if asked.level else []
    decides = {
        "cells": [cell.key for cell in asked.matrix.cells],
        "slo": level,
        "max_rate": options["max_rate"] if level else None,
        "seed": options["seed"],
    }
    return {
        "format": FORMAT,
        "matrix": digest(decides),
        **decides,
        "varied": [dict(cell.varied) for cell in asked.matrix.cells],
    }


def _run(asked: _Asked, records: Records, options: Mapping[str, Any], ending: Ending) -> int:
    from benchserver.sweep.cells import runs_of
    from benchserver.sweep.running import Progress
    from benchserver.sweep.table import summary, text_table

    matrix, output = asked.matrix, Output(ending)
    runs = runs_of(matrix.cells, matrix.repetitions, options["seed"])
    progress = Progress(planned=len(runs))
    there = sum(records.read(run.name) is not None for run in runs)
    known = f", {there} of them there already" if there else ""
    each = "searches" if asked.level else "runs"
    output.outlet.line(
        f"{len(matrix.cells)} cells x {matrix.repetitions} repetitions in {records.folder}: "
        f"{len(runs)} {each}{known}; seed {options['seed']}"
    )
    trouble = ""
    try:
        _play(asked, records, _launching(options, ending), runs, progress, output, ending)
    except FatalError as error:
        trouble = str(error)
    told = _told(asked, progress, options)
    for line in text_table(told):
        output.outlet.line(line)
    trouble = trouble or _keep(told, records)
    output.outlet.line(f"SWEEP: FAIL, {trouble} (exit 1)" if trouble else summary(told))
    code = EXIT_OK if told.good and not trouble else EXIT_FAILED
    return output.settled(code, lambda _: EXIT_FAILED)


def _play(
    asked: _Asked,
    records: Records,
    launching: Launching,
    runs: Sequence[Run],
    progress: Progress,
    output: Output,
    ending: Ending,
) -> None:
    """Make the runs, as long as no signal comes."""
    from benchserver.cli.loop import run_until_asked
    from benchserver.sweep.launch import make
    from benchserver.sweep.running import Sweep
    from benchserver.sweep.table import run_line

    def tell(run: Run, record: Record) -> None:
        output.outlet.line(run_line(run, record, progress))

    making = partial(make, records=records, how=launching)
    playing = Sweep(records, making, tell, asked.level).play(runs, progress)
    run_until_asked(playing, ending)


def _launching(options: Mapping[str, Any], ending: Ending) -> Launching:
    from benchserver.embedded import own_environment
    from benchserver.sweep.launch import LOAD as LOAD_COMMAND
    from benchserver.sweep.launch import Launching
    from benchserver.sweep.server import Serving

    environment = own_environment()
    token = {_TOKEN: os.environ[_TOKEN]} if _TOKEN in os.environ else {}
    serving = Serving(
        environment=environment,
        ready_s=options["ready_within"],
        stop_s=lambda: _ASKED_STOP_S if ending.asked else _STOP_S,
    )
    return Launching(
        load=LOAD_COMMAND,
        environment={**environment, **token},
        serving=serving,
        seed=options["seed"],
        cell_timeout_s=options["cell_timeout"],
    )


def _told(asked: _Asked, progress: Progress, options: Mapping[str, Any]) -> Told:
    from benchserver.sweep.rows import rows_of
    from benchserver.sweep.table import Told

    level = asked.level.conditions if asked.level else ()
    return Told(
        rows=rows_of(asked.matrix.cells, progress.outcomes),
        progress=progress,
        seed=options["seed"],
        levels=tuple(condition.text for condition in level),
    )


def _keep(told: Told, records: Records) -> str:
    """Write the table beside the records, and return what kept it from that, or ""."""
    from benchserver.sweep.records import write_bytes_whole, write_whole
    from benchserver.sweep.table import csv_table, document, text_table

    try:
        write_whole(records.folder / "table.json", document(told))
        write_bytes_whole(records.folder / "table.csv", csv_table(told).encode())
        text = "\n".join(text_table(told)) + "\n"
        write_bytes_whole(records.folder / "table.txt", text.encode())
    except FatalError as error:
        return str(error)
    return ""

"""`bench-server selftest`: options to cases, the runs, the table, the exit code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from benchserver.cli.clickoptions import with_options
from benchserver.cli.group import OneLineCommand
from benchserver.cli.output import Output
from benchserver.ending import Ending
from benchserver.errors import EXIT_FAILED, EXIT_OK, FatalError, UsageError, one_line
from benchserver.limits import require, selftest_need
from benchserver.selftest.options import SELFTEST

if TYPE_CHECKING:
    from benchserver.clock import RealClock
    from benchserver.report.destinations import Destination
    from benchserver.selftest.case import Case
    from benchserver.selftest.judge import Row
    from benchserver.selftest.table import TablePrinter

_INTERRUPTED = "interrupted, nothing is proven"


@click.command(cls=OneLineCommand)
@with_options(SELFTEST, command="selftest")
@click.pass_obj
def selftest(ending: Ending, /, **options: Any) -> int:
    """Prove that every check can fail: run the bench into every fault of the embedded server.

    Exit code 0: each fault was caught by the check that must catch it, and harmless ones passed.
    """
    if not options["list"]:
        require(selftest_need(jobs=options["jobs"]))
    return run_selftest(options, ending)


def chosen(names: Sequence[str]) -> list[Case]:
    """Return the runs of these faults, all if there are none; UsageError for an unknown one."""
    from benchserver.selftest.case import CONTROL
    from benchserver.selftest.cases.every import CASES

    known = dict.fromkeys(case.fault for case in CASES)
    for name in names:
        if name not in known:
            raise UsageError(
                f"--only {one_line(ascii(name), 60)}: no such fault; known: {', '.join(known)} "
                f"({CONTROL} is the server without a fault)"
            )
    return [case for case in CASES if not names or case.fault in names]


def run_selftest(options: Mapping[str, Any], ending: Ending) -> int:
    """Run, print the table, and return the exit code."""
    from benchserver.clock import NS_PER_S, RealClock
    from benchserver.selftest.table import list_line, make_table

    cases = chosen(options["only"])
    if options["list"]:
        for case in cases:
            click.echo(list_line(case))
        return EXIT_OK
    if options["mode"] == "gpu":
        from benchserver.kv.gpu.requirements import require_device

        require_device()
    with ExitStack() as opened:
        report = _open_report(options["json"], ending, opened)
        output = Output(ending, to_stderr=report is not None and report.takes_stdout)
        opened.callback(output.trouble)
        table = make_table(len(cases), output.outlet)
        with ending.undoing(table.restore):
            clock = RealClock()
            started_ns = clock.now_ns()
            try:
                rows = _run(cases, options, table, clock, ending)
            finally:
                table.close()
            told = _Told(rows, (clock.now_ns() - started_ns) / NS_PER_S, options["mode"])
            code = _tell(told, output, report)
            return output.settled(code, lambda trouble: _fail(told, report, trouble))


def _run(
    cases: Sequence[Case],
    options: Mapping[str, Any],
    table: TablePrinter,
    clock: RealClock,
    ending: Ending,
) -> list[Row] | None:
    """Run the cases; None if a signal ended them, and all their children, before that."""
    from benchserver.cli.loop import run_until_asked
    from benchserver.selftest.runs import GPU, HOST, run_cases

    setup = GPU if options["mode"] == "gpu" else HOST
    setup = replace(setup, seconds_left=ending.seconds_left)
    jobs = options["jobs"]
    work = run_cases(cases, jobs=jobs, clock=clock, on_row=table.row, setup=setup)
    return run_until_asked(work, ending)


@dataclass(frozen=True, slots=True)
class _Told:
    """What there is to tell: the rows, None if a signal came first."""

    rows: list[Row] | None
    wall_s: float
    mode: str


@dataclass(frozen=True, slots=True)
class _Report:
    destination: Destination
    takes_stdout: bool

    def write(self, told: _Told, trouble: str = "") -> None:
        """Write what there is to tell; FatalError if that cannot be done."""
        from benchserver.selftest.table import document

        found = document(told.rows or [], told.wall_s, told.mode, trouble=trouble)
        self.destination.write((json.dumps(found, indent=2) + "\n").encode())


def _open_report(path: str | None, ending: Ending, opened: ExitStack) -> _Report | None:
    if path is None:
        return None
    from benchserver.report.destinations import names_stdout, open_destination

    destination = open_destination("--json", path, ending.seconds_left)
    opened.callback(destination.close)
    return _Report(destination, names_stdout(path))


def _tell(told: _Told, output: Output, report: _Report | None) -> int:
    """Write the report and, last, what the table proves; return the exit code."""
    from benchserver.selftest.table import summary

    trouble = "" if told.rows is not None else _INTERRUPTED
    if report is not None:
        try:
            report.write(told, trouble)
        except FatalError as error:
            trouble = trouble or str(error)
    if told.rows is None:
        output.outlet.line(f"SELFTEST: {trouble} (exit 1)")
        return EXIT_FAILED
    output.outlet.line(summary(told.rows, told.wall_s, trouble))
    return EXIT_FAILED if trouble or any(row.wrong for row in told.rows) else EXIT_OK


def _fail(told: _Told, report: _Report | None, trouble: str) -> int:
    """Tell a report that can be written again what happened since; return the exit code."""
    if report is not None and report.destination.rewritable:
        with suppress(FatalError):
            report.write(told, trouble)
    return EXIT_FAILED

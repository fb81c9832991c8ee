"""`bench-server breakeven`: options to a question, the table, the reports.  Nothing is started."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from benchserver.breakeven.options import BREAKEVEN
from benchserver.cli.clickoptions import with_options
from benchserver.cli.group import OneLineCommand
from benchserver.cli.output import Output, complain
from benchserver.ending import Ending
from benchserver.errors import EXIT_FAILED, EXIT_OK, FatalError, UsageError

if TYPE_CHECKING:
    from benchserver.report.destinations import Destination

Reports = list[tuple["Destination", bytes]]
"""Where each goes, and what it says."""


@click.command(cls=OneLineCommand)
@with_options(BREAKEVEN, command="breakeven")
@click.pass_obj
def breakeven(ending: Ending, /, **options: Any) -> int:
    """Tell whether a hit in the cache beats computing it again, and on which network.

    A gain or a loss is an answer, so the exit code is 0 for both.
    """
    from benchserver.breakeven.measured import read_run
    from benchserver.breakeven.question import question
    from benchserver.breakeven.table import document, lines

    run = None if options["run"] is None else read_run(options["run"])
    asked = question(options, run)
    with ExitStack() as opened:
        reports: Reports = []
        output = Output(ending, to_stderr=_takes_stdout(options["json"]))
        if options["plot"] is not None:
            from benchserver.breakeven.plot import format_of, picture

            file_format = format_of(options["plot"])
            destination = _opened("--plot", options, ending, opened)
            reports.append((destination, picture(asked, file_format)))
        if options["json"] is not None:
            content = json.dumps(document(asked, run), indent=2).encode() + b"\n"
            reports.append((_opened("--json", options, ending, opened), content))
        for line in lines(asked, run):
            output.outlet.line(line)
        return output.settled(_delivered(reports), lambda _: EXIT_FAILED)


def _takes_stdout(json_path: str | None) -> bool:
    from benchserver.report.destinations import names_stdout

    return json_path is not None and names_stdout(json_path)


def _opened(
    option: str, options: Mapping[str, Any], ending: Ending, opened: ExitStack
) -> Destination:
    """Return where a report goes; UsageError if it cannot go there, or another does."""
    from benchserver.report.destinations import open_destination, same_destination

    path, other = options[option.removeprefix("--")], options["plot"]
    if option == "--json" and other is not None and same_destination(path, other):
        raise UsageError(f"--json and --plot both name {path}")
    destination = open_destination(option, path, ending.seconds_left)
    opened.callback(destination.close)
    return destination


def _delivered(reports: Reports) -> int:
    """Write the reports and return the exit code."""
    code = EXIT_OK
    for destination, content in reports:
        try:
            destination.write(content)
        except FatalError as error:
            complain(str(error))
            code = EXIT_FAILED
    return code

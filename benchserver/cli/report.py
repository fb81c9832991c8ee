"""`bench-server report`: the page of a run, out of its JSON report.  No server is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from benchserver.cli.clickoptions import with_options
from benchserver.cli.group import OneLineCommand
from benchserver.cli.output import Output, complain
from benchserver.ending import Ending
from benchserver.errors import EXIT_FAILED, EXIT_OK, FatalError, UsageError, one_line
from benchserver.page.options import REPORT

_FORMAT = 1


@click.command(cls=OneLineCommand)
@click.argument("run", metavar="RUN.json", required=False)
@with_options(REPORT, command="report")
@click.pass_obj
def report(ending: Ending, /, run: str | None, **options: Any) -> int:
    """Write the page of a run, out of the report that --json has written.

    Exit code 0: the page is written, whatever its verdict; 1: it could not be; 2: wrong usage.
    """
    from benchserver.page.drawing import require_drawing
    from benchserver.report.destinations import names_stdout, open_destination, same_destination

    if run is None:
        raise UsageError("a report needs the run: bench-server report RUN.json")
    document = read_report(run)
    require_drawing("a page")
    path = options["html"] or str(Path(run).with_suffix(".html"))
    if same_destination(path, run):
        raise UsageError(f"--html and the report are both {one_line(path, 120)}")
    destination = open_destination("--html", path, ending.seconds_left)
    try:
        from benchserver.page.run import html_report

        destination.write(html_report(document))
    except FatalError as error:
        complain(str(error))
        return EXIT_FAILED
    finally:
        destination.close()
    output = Output(ending, to_stderr=names_stdout(path))
    output.outlet.line(f"Wrote {path}")
    return output.settled(EXIT_OK, lambda _: EXIT_FAILED)


def read_report(path: str) -> Mapping[str, Any]:
    """Return the report of a run in a file; UsageError if it is none that can be read."""
    from benchserver.jsonfile import read_json_file

    named = one_line(path, 120) or ascii(path)
    document = read_json_file(named, path)
    if not isinstance(document, Mapping) or not {"format", "verdict"} <= set(document):
        raise UsageError(
            f"{named}: not the report of a run; make one with `bench-server --json PATH`"
        )
    if (found := document["format"]) != _FORMAT:
        raise UsageError(
            f"{named}: a report of format {one_line(found, 40)}, this bench-server reads {_FORMAT}"
        )
    return document

"""`bench-server compare`: reports to two sides, the table, gates.  Nothing is started."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import click

from benchserver.cli.clickoptions import with_options
from benchserver.cli.group import OneLineCommand
from benchserver.cli.output import Output, complain, say
from benchserver.compare.options import COMPARE
from benchserver.ending import Ending
from benchserver.errors import EXIT_FAILED, FatalError, UsageError


class _TwoSided(OneLineCommand):
    """A command whose paths are parted by `--`, beside which options may stand anywhere."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the place of `--`, which click forgets."""
        from benchserver.compare.question import SEPARATOR

        return super().parse_args(ctx, [SEPARATOR if word == "--" else word for word in args])


@click.command(cls=_TwoSided, options_metavar="[OPTIONS]")
@click.argument("paths", metavar="A... [--] B...", nargs=-1)
@with_options(COMPARE, command="compare")
@click.pass_obj
def compare(ending: Ending, /, paths: tuple[str, ...], **options: Any) -> int:
    """Tell whether the runs of two sides differ: A is what was, B what is compared with it.

    A path is the JSON report of a run, a folder of them, or that of a sweep.  Two paths are both
    sides; with more, -- stands between them.

    Exit code 0: no gate is broken; 1: one is; 2: wrong usage, or the sides must not be compared;
    3: nobody can tell whether a gate is broken.
    """
    from benchserver.compare.document import document
    from benchserver.compare.question import Refused, answer, split
    from benchserver.compare.reading import read_sides
    from benchserver.compare.text import lines
    from benchserver.report.destinations import names_stdout, open_destination

    told = answer(*read_sides(*split(paths)), options)
    if isinstance(told, Refused):
        for text in told.lines:
            say(text)
        raise UsageError(told.error)
    path, code = options["json"], told.exit_code
    output = Output(ending, to_stderr=path is not None and names_stdout(path))
    with ExitStack() as opened:
        if path is not None:
            destination = open_destination("--json", path, ending.seconds_left)
            opened.callback(destination.close)
        for line in lines(told):
            output.outlet.line(line)
        if path is not None:
            content = json.dumps(document(told, options["seed"]), indent=1).encode() + b"\n"
            try:
                destination.write(content)
            except FatalError as error:
                complain(str(error))
                code = EXIT_FAILED
        return output.settled(code, lambda _: EXIT_FAILED)

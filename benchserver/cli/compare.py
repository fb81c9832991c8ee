"""`bench-server compare`: reports to two sides, the table, gates.  Nothing is started."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from benchserver.cli.clickoptions import with_options
from benchserver.cli.group import OneLineCommand
from benchserver.cli.output import Output, complain, say
from benchserver.compare.options import COMPARE
from benchserver.ending import Ending
from benchserver.errors import EXIT_FAILED, FatalError, UsageError, one_line

if TYPE_CHECKING:
    from benchserver.report.destinations import Destination


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

    sides = split(paths)
    _check_outputs([*sides[0], *sides[1]], options)
    told = answer(*read_sides(*sides), options)
    if isinstance(told, Refused):
        for text in told.lines:
            say(text)
        raise UsageError(told.error)
    code = told.exit_code
    output = Output(ending, to_stderr=any(map(_takes_stdout, _outputs(options).values())))
    with ExitStack() as opened:
        destinations = {
            option: _opened(option, path, ending, opened)
            for option, path in _outputs(options).items()
        }
        for line in lines(told):
            output.outlet.line(line)
        found = document(told, options["seed"])
        for option, destination in destinations.items():
            try:
                destination.write(_CONTENTS[option](found))
            except FatalError as error:
                complain(str(error))
                code = EXIT_FAILED
        return output.settled(code, lambda _: EXIT_FAILED)


def _outputs(options: Mapping[str, Any]) -> dict[str, str]:
    """Return where reports go, by their options."""
    paths = {option: options[option.removeprefix("--")] for option in _CONTENTS}
    return {option: path for option, path in paths.items() if path is not None}


def _check_outputs(inputs: Sequence[str], options: Mapping[str, Any]) -> None:
    """Raise UsageError for two outputs in one place, or one in the place of an input."""
    from benchserver.page.drawing import require_drawing
    from benchserver.report.destinations import same_destination

    outputs = _outputs(options)
    if "--html" in outputs:
        require_drawing("--html")
    if len(outputs) == len(_CONTENTS) and same_destination(*outputs.values()):
        raise UsageError(f"{' and '.join(outputs)} both name {options['json']}")
    for option, path in outputs.items():
        if any(same_destination(path, each) for each in inputs):
            raise UsageError(f"{option} {one_line(path, 120)} is a report that is compared")


def _takes_stdout(path: str) -> bool:
    from benchserver.report.destinations import names_stdout

    return names_stdout(path)


def _opened(option: str, path: str, ending: Ending, opened: ExitStack) -> Destination:
    from benchserver.report.destinations import open_destination

    destination = open_destination(option, path, ending.seconds_left)
    opened.callback(destination.close)
    return destination


def _json(found: Mapping[str, Any]) -> bytes:
    return json.dumps(found, indent=1).encode() + b"\n"


def _html(found: Mapping[str, Any]) -> bytes:
    from benchserver.page.comparison import comparison_page

    return comparison_page(found)


_CONTENTS: Mapping[str, Callable[[Mapping[str, Any]], bytes]] = {"--json": _json, "--html": _html}
"""What each output is made of: the document of the comparison."""

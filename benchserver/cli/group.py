"""The group of commands: each error is one line and an exit code, and says whose value it is."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from typing import Any

import click

from benchserver.cli.clickoptions import TableOption
from benchserver.cli.environment import origin, warning, with_origins
from benchserver.cli.output import complain, say
from benchserver.ending import Ending
from benchserver.errors import BEFORE, EXIT_FAILED, EXIT_USAGE, HarnessError, os_reason
from benchserver.limits import shortage

_LAST = "Other"
"""The heading of click's own options."""


class OneLineCommand(click.Command):
    """A command whose errors name the variables that they come from."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, each under its heading."""
        _write_options(self, ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        try:
            return super().invoke(ctx)
        except HarnessError as error:
            raise type(error)(with_origins(ctx, str(error))) from error


class OneLineGroup(click.Group):
    """A group whose errors are one line each: usage exits 2, a fatal error 1."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, each under its heading, and the commands."""
        _write_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run, and exit the process with the documented code, whatever threads still do."""
        ending = kwargs.setdefault("obj", Ending())
        try:
            code = self._code(*args, **kwargs)
        except Exception:
            ending.end(EXIT_FAILED, say=traceback.print_exc)
            raise
        ending.end(code)
        sys.exit(code)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it, or a command of it, and warn first of variables that no option knows."""
        if text := warning(self, os.environ):
            say(f"bench-server: warning: {text}")
        try:
            return super().invoke(ctx)
        except HarnessError as error:
            if ctx.invoked_subcommand is not None:
                raise
            raise type(error)(with_origins(ctx, str(error))) from error

    def _code(self, *args: Any, **kwargs: Any) -> int:
        """Run, and return the exit code."""
        kwargs["standalone_mode"] = False
        try:
            code = super().main(*args, **kwargs)
        except click.UsageError as error:
            complain(_usage_text(error))
            return EXIT_USAGE
        except HarnessError as error:
            complain(str(error))
            return error.exit_code
        except (click.Abort, KeyboardInterrupt):  # the former is a RuntimeError
            complain(BEFORE)
            return EXIT_FAILED
        except (OSError, MemoryError, RuntimeError) as error:
            text = shortage(error)
            if not text:
                if not isinstance(error, OSError):
                    raise
                text = f"cannot write: {os_reason(error)}"
            complain(text)
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is buffered goes nowhere
            return EXIT_FAILED
        return code if isinstance(code, int) else 0


def _write_options(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    sections: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(ctx):
        heading = parameter.table.title if isinstance(parameter, TableOption) else _LAST
        if (record := parameter.get_help_record(ctx)) is not None:
            sections.setdefault(heading, []).append(record)
    for heading, records in sections.items():
        with formatter.section(heading):
            formatter.write_dl(records)


def _usage_text(error: click.UsageError) -> str:
    text = error.format_message().rstrip(".")
    command = "bench-server" if error.ctx is None else error.ctx.command_path
    if isinstance(error, click.BadParameter) and error.ctx is not None and error.param is not None:
        place = origin(error.ctx, error.param)
        text += f", from {place}" if place else ""
    return f"{text}; see {command} --help"

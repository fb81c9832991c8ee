"""Options from variables: which name stands for which, and where a wrong value came from.

Kubernetes describes every service of a namespace to all its pods in variables: one that is called
`bench-server-serve` makes BENCH_SERVER_SERVE_PORT=tcp://10.0.0.1:5555 and a dozen more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

import click
from click.core import ParameterSource

from benchserver.cli.clickoptions import TableOption
from benchserver.errors import one_line
from benchserver.options.option import PREFIX

_MAX_NAMES = 8
"""How many names a warning shows; a service with several ports makes dozens."""


def variables_of(command: click.Command) -> Iterator[tuple[str, TableOption]]:
    """Yield the variables of a command and those below it, with the options they stand for."""
    for parameter in command.params:
        if isinstance(parameter, TableOption):
            for name in _variables(parameter):
                yield name, parameter
    for sub in command.commands.values() if isinstance(command, click.Group) else ():
        yield from variables_of(sub)


def warning(command: click.Command, environment: Mapping[str, str]) -> str:
    """Return a line about variables of our prefix that mean nothing to us, or ""."""
    known = dict(variables_of(command))
    lost = sorted(
        name
        for name, value in environment.items()
        if name.startswith(f"{PREFIX}_") and not (name in known and known[name].is_meant(value))
    )
    if not lost:
        return ""
    shown = ", ".join(one_line(ascii(name)[1:-1], 60) for name in lost[:_MAX_NAMES])
    more = f" and {len(lost) - _MAX_NAMES} more" if len(lost) > _MAX_NAMES else ""
    what = "is not an option" if len(lost) == 1 else "are not options"
    return f"{shown}{more} in the environment {what} of bench-server: ignored"


def origin(ctx: click.Context, parameter: click.Parameter) -> str:
    """Return where a value came from that is not on the command line, or ""."""
    source = ctx.get_parameter_source(parameter.name or "")
    if source is ParameterSource.ENVIRONMENT:
        names = [name for name in _variables(parameter) if name in os.environ]
        return f"the variable {names[0]}" if names else ""
    return "--config" if source is ParameterSource.DEFAULT_MAP else ""


def with_origins(ctx: click.Context, text: str) -> str:
    """Return an error with the origins of those options that it names."""
    notes = []
    for parameter in ctx.command.params:
        option = parameter.opts[0]
        if re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text):
            place = origin(ctx, parameter)
            notes += [f"{option} is from {place}"] if place else []
    return f"{text} ({', '.join(notes)})" if notes else text


def from_environment(ctx: click.Context) -> list[str]:
    """Return the names of the variables that decide about a run."""
    found = (origin(ctx, parameter) for parameter in ctx.command.params)
    return [text.removeprefix("the variable ") for text in found if text.startswith("the ")]


def _variables(parameter: click.Parameter) -> list[str]:
    found = parameter.envvar
    return [found] if isinstance(found, str) else list(found or ())

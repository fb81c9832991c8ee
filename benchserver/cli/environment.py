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

from benchserver.errors import one_line

PREFIX = "BENCH_SERVER"

_MAX_NAMES = 8
"""How many names a warning shows; a service with several ports makes dozens."""

_SERVICE_LINK = re.compile(r"(?:tcp|udp|sctp)://.*", re.DOTALL)


class PortOption(click.Option):
    """An option for a port, which does not mistake a Kubernetes service of that name for one."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the variable's value, if it is meant for us."""
        value = super().resolve_envvar_value(ctx)
        return None if value is not None and _SERVICE_LINK.fullmatch(value) else value


def variables_of(command: click.Command, prefix: str = PREFIX) -> Iterator[tuple[str, str]]:
    """Yield the variables of a command and those below it, with the options they stand for."""
    for parameter in command.params:
        for name in _variables(parameter, prefix):
            yield name, parameter.opts[0]
    for name, sub in command.commands.items() if isinstance(command, click.Group) else ():
        yield from variables_of(sub, f"{prefix}_{name.upper()}")


def warning(command: click.Command, environment: Mapping[str, str]) -> str:
    """Return a line about variables of our prefix that mean nothing to us, or ""."""
    known = dict(variables_of(command))
    lost = sorted(
        name
        for name, value in environment.items()
        if name.startswith(f"{PREFIX}_")
        and (name not in known or (known[name].endswith("port") and _SERVICE_LINK.fullmatch(value)))
    )
    if not lost:
        return ""
    shown = ", ".join(one_line(ascii(name)[1:-1], 60) for name in lost[:_MAX_NAMES])
    more = f" and {len(lost) - _MAX_NAMES} more" if len(lost) > _MAX_NAMES else ""
    verb = "is" if len(lost) == 1 else "are"
    return f"{shown}{more} in the environment {verb} no option of bench-server: ignored"


def origin(ctx: click.Context, parameter: click.Parameter) -> str:
    """Return where a value came from that is not on the command line, or ""."""
    source = ctx.get_parameter_source(parameter.name or "")
    if source is ParameterSource.ENVIRONMENT:
        prefix = ctx.auto_envvar_prefix or PREFIX
        names = [name for name in _variables(parameter, prefix) if name in os.environ]
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


def _variables(parameter: click.Parameter, prefix: str) -> list[str]:
    if parameter.envvar is not None:
        return [parameter.envvar] if isinstance(parameter.envvar, str) else list(parameter.envvar)
    return [f"{prefix}_{(parameter.name or '').upper()}"]

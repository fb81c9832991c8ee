"""Tables of options as click's: what the command line, variables and `--help` make of a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from benchserver.cli.types import StrictFloat, StrictInt, Text
from benchserver.options import kinds
from benchserver.options.option import Option, Table, Tables, variable_of

_SERVICE_LINK = re.compile(r"(?:tcp|udp|sctp)://.*", re.DOTALL)

F = TypeVar("F", bound=Callable[..., Any])
Callback = Callable[[click.Context, click.Parameter, Any], Any]


class TableOption(click.Option):
    """An option that a row describes."""

    def __init__(self, names: list[str], *, row: Option, table: Table, **attributes: Any) -> None:
        self.row = row
        self.table = table
        super().__init__(names, **attributes)

    def is_meant(self, value: str) -> bool:
        """Tell whether a variable's value is meant for us: a port is not a service's address."""
        return not (isinstance(self.row.kind, kinds.Port) and _SERVICE_LINK.fullmatch(value))

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the variable's value, if it is meant for us."""
        value = super().resolve_envvar_value(ctx)
        return value if value is not None and self.is_meant(value) else None


def with_options(
    tables: Tables, callbacks: Mapping[str, Callback] | None = None, *, command: str = ""
) -> Callable[[F], F]:
    """Give a command the options of these tables.

    `callbacks`: what options do as soon as they are read, by their names.
    """

    def decorate(function: F) -> F:
        for table in reversed(tables):
            for option in reversed(table.options):
                callback = (callbacks or {}).get(option.name)
                attributes = _attributes(option, callback)
                if not isinstance(option.kind, kinds.Action):
                    attributes["envvar"] = variable_of(option, table, command)
                attributes |= {"row": option, "table": table, "cls": TableOption}
                function = click.option(option.name, option.key, **attributes)(function)
        return function

    return decorate


def _attributes(option: Option, callback: Callback | None) -> dict[str, Any]:
    note = f"  [default: {option.default_shown}]" if option.default_shown else ""
    attributes: dict[str, Any] = {
        "help": option.help + note,
        "hidden": option.hidden,
        "metavar": kinds.placeholder(option.kind) or None,
        **_taken(option.kind),
    }
    if callback is not None:
        attributes |= {"callback": callback, "is_eager": True}
    plain = isinstance(option.default, str | int | float) and option.default != ""
    if plain and not option.given_field:
        attributes["default"] = option.default
    return attributes


def _taken(kind: kinds.Kind) -> dict[str, Any]:
    """Return what click must know of a kind."""
    match kind:
        case kinds.Whole(low, high) | kinds.Port(low, high):
            return {"type": StrictInt(low, high)}
        case kinds.Number(low, high, _):
            return {"type": StrictFloat(low, high)}
        case kinds.Choice(words):
            return {"type": click.Choice(words)}
        case kinds.Text(_, any_script):
            return {"type": Text() if any_script else str}
        case kinds.Texts():
            return {"type": str, "multiple": True}
        case kinds.Flag():
            return {"is_flag": True}
        case kinds.Action():
            return {"is_flag": True, "expose_value": False}

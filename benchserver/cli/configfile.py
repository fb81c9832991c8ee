"""`--config FILE`: a TOML file with options by their long names, as defaults for the others.

    rpc-url = "tcp://localhost:5555"
    end = 20
    [serve]
    port = 5555

Command line and environment win over it.  Unknown names are refused.  What all scenarios share
(`rpc-url`, `json`, ...) is said once, for all of them.
"""

from __future__ import annotations

from typing import Any

import click

from benchserver.cli.clickoptions import TableOption
from benchserver.cli.tomlfile import read_toml
from benchserver.cli.types import StrictFloat, StrictInt
from benchserver.errors import UsageError


def load_config(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Put the file's values into the context's defaults; a click callback."""
    if value is not None:
        ctx.default_map = _lent(ctx.command, {**(ctx.default_map or {}), **_read(ctx, value)})
    return value


def _read(ctx: click.Context, path: str) -> dict[str, Any]:
    try:
        document = read_toml(path)
    except UsageError as error:
        raise click.BadParameter(str(error)) from error
    return _checked(ctx.command, document, path)


def _checked(command: click.Command, document: dict[str, Any], path: str) -> dict[str, Any]:
    """Translate option names to parameter names, table by table; refuse unknown ones."""
    parameters = {
        parameter.row.file_key: parameter
        for parameter in command.params
        if isinstance(parameter, TableOption) and not parameter.is_eager
    }
    result: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            result[key] = _checked(_subcommand(command, key, path), value, path)
        elif key not in parameters:
            known = ", ".join(sorted(parameters))
            raise click.BadParameter(f"{path}: unknown option {key!a}; known: {known}")
        elif parameters[key].multiple:
            result[parameters[key].name or ""] = _several(value, key, path)
        elif isinstance(value, list):
            raise click.BadParameter(f"{path}: {key} is an array, expected a single value")
        else:
            if problem := _problem(parameters[key], value):
                raise click.BadParameter(f"{path}: {key} = {value!a}: {problem}")
            result[parameters[key].name or ""] = value
    return result


def _lent(command: click.Command, values: dict[str, Any]) -> dict[str, Any]:
    """Give the values of options that commands share to those below, where they say no other."""
    for name, below in command.commands.items() if isinstance(command, click.Group) else ():
        shared = {
            option.row.key
            for option in below.params
            if isinstance(option, TableOption) and option.table.shared
        }
        lent = {key: value for key, value in values.items() if key in shared}
        values = {**values, name: {**lent, **values.get(name, {})}}
    return values


def _problem(parameter: TableOption, value: Any) -> str:
    """Say why an option cannot have a value of this kind, or "".

    What click makes of a true, or of a number, where a text is due would be a file of that name.
    """
    if parameter.is_flag:
        return "" if isinstance(value, bool) else "expected true or false"
    looks_itself = isinstance(parameter.type, StrictInt | StrictFloat | click.Choice)
    return "" if looks_itself or isinstance(value, str) else "expected text in quotes"


def _several(value: Any, key: str, path: str) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str) for item in values):
        raise click.BadParameter(f"{path}: {key} must be a string, or an array of strings")
    return tuple(values)


def _subcommand(command: click.Command, name: str, path: str) -> click.Command:
    found = command.commands.get(name) if isinstance(command, click.Group) else None
    if found is None:
        raise click.BadParameter(f"{path}: unknown table [{name}]")
    return found

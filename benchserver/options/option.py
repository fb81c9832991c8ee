"""One option, and tables of them: plain data, and what follows from a row alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchserver.options.kinds import (
    Action,
    ByField,
    Flag,
    Kind,
    Texts,
    bounds,
    range_problem,
    shown,
)


@dataclass(frozen=True, slots=True)
class Replayed:
    """The replay line has the option: always, or where it is not the default.

    Options stand there by `place`; those of one place as in their table.
    """

    place: int = 50
    always: bool = False


@dataclass(frozen=True, slots=True)
class NotReplayed:
    """The replay line never has the option."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option.

    `field`: the field of the configuration that it decides, "": it is not the only one, or none.
    `default`: the value of that field if nobody gives one.  `default_text`: what the help says of
    it, where the value does not say it.  `given_field`: the field that tells whether a user gave
    it.  `excluded_by`: the flag beside which it must not be given, and is not replayed.  `needs`:
    the option without which it must not be given, and why.
    """

    name: str
    kind: Kind
    help: str
    replay: Replayed | NotReplayed
    field: str = ""
    default: Any = None
    default_text: str = ""
    given_field: str = ""
    excluded_by: str = ""
    needs: tuple[str, str] | None = None
    report_key: str = ""
    """Its key in JSON's `config`, if it is not called as its field."""
    text_of: Callable[[Any], str] = shown
    """The value of its field, as the command line takes it."""
    variable_name: str = ""
    """The end of its variable's name, if that is not the option's."""
    shared: bool = False
    """All commands that have it read it from the same variable."""
    secret: bool = False
    """No output shows its value."""
    hidden: bool = False
    """For our own processes: no help names it."""

    @property
    def key(self) -> str:
        """Return the name of its value among the options of a command."""
        return self.name.removeprefix("--").replace("-", "_")

    @property
    def file_key(self) -> str:
        """Return its key in the configuration file."""
        return self.name.removeprefix("--")

    @property
    def variable(self) -> str:
        """Return the end of its variable's name."""
        return self.variable_name or self.key.upper()

    @property
    def json_key(self) -> str:
        """Return its key in JSON's `config`, or "" if it is not there."""
        return "" if self.secret else self.report_key or self.field

    @property
    def default_shown(self) -> str:
        """Return what the help says of its default, or "" if there is nothing to say."""
        if self.default_text or isinstance(self.kind, Flag | Texts | Action):
            return self.default_text
        nothing = self.default is None or self.default == "" or isinstance(self.default, ByField)
        return "" if nothing else self.text_of(self.default)

    def default_in(self, fields: Mapping[str, Any]) -> Any:
        """Return the default in a configuration with these fields."""
        if isinstance(self.default, ByField):
            return self.default.values[fields[self.default.field]]
        return self.default

    def problem(self, value: Any) -> str:
        """Say that a field's value is out of the option's bounds, or ""."""
        limits = bounds(self.kind)
        found = "" if limits is None or value is None else range_problem(value, *limits)
        return f"{self.name} {found}" if found else ""


@dataclass(frozen=True, slots=True)
class Table:
    """Options that belong together, under a heading of the help.

    `shared`: all commands that have these options read them from the same variables.
    """

    title: str
    options: tuple[Option, ...]
    shared: bool = False


Tables = tuple[Table, ...]

PREFIX = "BENCH_SERVER"
"""Of all variables."""


def variable_of(option: Option, table: Table, command: str = "") -> str:
    """Return the name of an option's variable; `command` "" is `bench-server` without one."""
    own = command and not (table.shared or option.shared)
    return "_".join([PREFIX, *([command.upper()] if own else []), option.variable])


def options_in(tables: Iterable[Table]) -> Iterator[Option]:
    """Yield the options of all tables."""
    for table in tables:
        yield from table.options


def option_called(tables: Iterable[Table], name: str) -> Option:
    """Return the option of this name."""
    return next(option for option in options_in(tables) if option.name == name)


def fields_of(tables: Iterable[Table], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a configuration that options decide by their values alone.

    `given`: by `Option.key`; None or nothing stands for the default.
    """
    fields: dict[str, Any] = {}
    rows = [option for option in options_in(tables) if option.field]
    # Defaults that depend on another field come behind all others.
    for option in sorted(rows, key=lambda option: isinstance(option.default, ByField)):
        value = given.get(option.key)
        if isinstance(option.kind, Flag):
            fields[option.field] = option.kind.gives if value else not option.kind.gives
        else:
            fields[option.field] = option.default_in(fields) if value is None else value
        if option.given_field:
            fields[option.given_field] = value is not None
    return fields

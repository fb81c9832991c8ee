"""The rows of all commands: both ways between them and the configuration, and every output.

An option that is missing from an output fails here, and so does one planted in a table alone.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click
import pytest

from benchserver.breakeven.options import BREAKEVEN
from benchserver.cli.clickoptions import TableOption, with_options
from benchserver.cli.main import SCENARIOS, cli
from benchserver.compare.options import COMPARE
from benchserver.config.engine import Engine
from benchserver.config.run import RunConfig
from benchserver.config.target import Target
from benchserver.config.watch import Watch
from benchserver.options.engine import ENGINE
from benchserver.options.kinds import Action, Choice, Flag, Port, Text, Texts
from benchserver.options.option import (
    NotReplayed,
    Option,
    Replayed,
    Tables,
    options_in,
    variable_of,
)
from benchserver.refserver.config import ServerConfig
from benchserver.refserver.options import SERVE
from benchserver.report.files import json_bytes
from benchserver.report.replay import replay_command
from benchserver.result import RunResult
from benchserver.scenarios.baseline.command import COMMAND as BASELINE
from benchserver.scenarios.command import Command
from benchserver.selftest.options import SELFTEST
from benchserver.sweep.options import SWEEP

MakeConfig = Callable[..., RunConfig]
GoodResult = Callable[..., RunResult]

PLAYED = (BASELINE, *SCENARIOS)
COMMANDS: list[tuple[str, Tables]] = [
    *((command.name, command.tables) for command in PLAYED),
    ("serve", SERVE),
    ("selftest", SELFTEST),
    ("sweep", SWEEP),
    ("breakeven", BREAKEVEN),
    ("compare", COMPARE),
]
BENCH = BASELINE.tables
ROWS = [row for row in options_in(BENCH) if row.field]


def fields_asked(command: Command[Any]) -> dict[str, Any]:
    """Return the fields of what a scenario is asked, each with its type."""
    engine = [Engine] if ENGINE in command.tables else []
    parts: list[Any] = [Target, *engine, command.part(), Watch]
    found = [(field.name, part) for part in parts for field in fields(part)]
    assert len(found) == len(dict(found)), "two parts have a field of one name"
    return {name: get_type_hints(part)[name] for name, part in found}


def unset_fields(tables: Tables, known: Collection[str]) -> set[str]:
    """Return the fields that no row decides, and those that rows name and nobody has."""
    rows = list(options_in(tables))
    decided = {row.field for row in rows} | {row.given_field for row in rows}
    return (decided - {""}) ^ set(known)


@pytest.mark.parametrize("command", PLAYED, ids=lambda command: command.name)
def test_every_field_has_its_row_and_every_row_its_field(command: Command[Any]) -> None:
    assert unset_fields(command.tables, fields_asked(command)) == set()


def test_the_rows_of_a_server_are_the_fields_of_its_configuration() -> None:
    known = {field.name: field.default for field in fields(ServerConfig)}
    # In GiB on the command line.
    assert unset_fields(SERVE, known) == {"l1_bytes"}
    for row in options_in(SERVE):
        # The ports of the command are well known, those of a server in a test any free ones.
        if row.field and not isinstance(row.kind, Flag | Port):
            assert row.default == known[row.field], row.name


def test_a_planted_row_and_a_missing_one_are_seen() -> None:
    target, known = BENCH[0], fields_asked(BASELINE)
    planted = replace(target.options[0], name="--planted", field="planted")
    more = replace(target, options=(*target.options, planted))
    assert unset_fields((more, *BENCH[1:]), known) == {"planted"}
    fewer = replace(target, options=target.options[1:])
    assert unset_fields((fewer, *BENCH[1:]), known) == {"rpc_url"}


@pytest.mark.parametrize(("command", "tables"), COMMANDS)
def test_rows_are_told_apart(command: str, tables: Tables) -> None:
    rows = list(options_in(tables))
    variables = [variable_of(row, table, command) for table in tables for row in table.options]
    for names in ([row.name for row in rows], [row.key for row in rows], variables):
        assert len(names) == len(set(names))
    assert all(row.name.startswith("--") and row.help.rstrip().endswith((".", "]")) for row in rows)


@pytest.mark.parametrize("command", PLAYED, ids=lambda command: command.name)
def test_a_row_that_decides_no_field_says_why_no_replay_needs_it(command: Command[Any]) -> None:
    for row in options_in(command.tables):
        if not row.field:
            assert isinstance(row.replay, NotReplayed)
            assert len(row.replay.why) > 10


@pytest.mark.parametrize("command", PLAYED, ids=lambda command: command.name)
def test_words_are_those_of_the_fields_type(command: Command[Any]) -> None:
    hints = fields_asked(command)
    for row in options_in(command.tables):
        if isinstance(row.kind, Choice) and get_args(hints.get(row.field)):
            assert set(row.kind.words) == set(get_args(hints[row.field]))


@pytest.mark.parametrize("command", PLAYED, ids=lambda command: command.name)
def test_an_option_that_needs_or_excludes_another_names_one(command: Command[Any]) -> None:
    names = {row.name for row in options_in(command.tables)}
    for row in options_in(command.tables):
        others = [row.excluded_by, row.needs[0] if row.needs else ""]
        assert {other for other in others if other} <= names


# Each output has every option


def params_of(command: click.Command) -> dict[str, TableOption]:
    return {p.row.name: p for p in command.params if isinstance(p, TableOption)}


def missing_from_click(tables: Tables, command: click.Command) -> list[str]:
    return [row.name for row in options_in(tables) if row.name not in params_of(command)]


def missing_from_variables(tables: Tables, command: click.Command, name: str) -> list[str]:
    known = params_of(command)
    return [
        row.name
        for table in tables
        for row in table.options
        if not isinstance(row.kind, Action)
        and (row.name not in known or known[row.name].envvar != variable_of(row, table, name))
    ]


def command_named(name: str) -> click.Command:
    return cli.commands[name] if name else cli


@pytest.mark.parametrize(("name", "tables"), COMMANDS)
def test_the_command_line_and_the_variables_have_every_option(name: str, tables: Tables) -> None:
    command = command_named(name)
    assert missing_from_click(tables, command) == []
    assert missing_from_variables(tables, command, name) == []
    assert len(params_of(command)) == len(list(options_in(tables)))
    others = [param for param in command.params if not isinstance(param, TableOption)]
    assert not any(isinstance(param, click.Option) for param in others)


def values(row: Option) -> tuple[Any, str]:
    """Return a value that an option takes, and how a TOML file writes it."""
    match row.kind:
        case Flag():
            return True, "true"
        case Choice(words):
            return words[-1], f'"{words[-1]}"'
        case Text():
            return "a text", '"a text"'
        case Texts():
            return ("a text",), '["a text"]'
        case _:
            return 1, "1"


@pytest.mark.parametrize(("name", "tables"), COMMANDS)
def test_the_file_has_every_option(name: str, tables: Tables, tmp_path: Path) -> None:
    taken = [row for row in options_in(tables) if not isinstance(row.kind, Action)]
    taken = [row for row in taken if row.name != "--config"]
    lines = [f"{row.file_key} = {values(row)[1]}" for row in taken]
    path = tmp_path / "bench.toml"
    path.write_text("\n".join([f"[{name}]" if name else "", *lines]))
    with cli.make_context("bench-server", ["--config", str(path)]) as ctx:
        if not name:
            read = ctx.params
        else:
            with command_named(name).make_context(name, [], parent=ctx) as child:
                read = child.params
    assert {row.key: read[row.key] for row in taken} == {row.key: values(row)[0] for row in taken}


def test_a_planted_option_comes_out_everywhere_without_another_line(
    good_result: GoodResult, make_config: MakeConfig
) -> None:
    row = Option(
        name="--planted",
        field="seed",
        report_key="planted",
        kind=Text("X"),
        help="",
        replay=Replayed(always=True),
    )
    tables = (replace(BENCH[0], options=(*BENCH[0].options, row)), *BENCH[1:])
    result = good_result(config=replace(make_config(seed=7), tables=tables))
    assert json.loads(json_bytes(result))["config"]["planted"] == 7
    assert "--planted 7" in replay_command(result)

    @click.command()
    @with_options(tables)
    def command(**_: Any) -> None: ...

    assert params_of(command)["--planted"].envvar == "BENCH_SERVER_PLANTED"


def test_json_has_every_option_that_decides_a_run(good_result: GoodResult) -> None:
    config = json.loads(json_bytes(good_result()))["config"]
    assert [row.name for row in ROWS if row.json_key not in config] == ["--http-token"]


def test_every_word_of_a_replay_line_is_an_option_or_its_value(good_result: GoodResult) -> None:
    words = shlex.split(replay_command(good_result()))[1:]
    names = {row.name for row in ROWS}
    assert [word for word in words[::2] if word not in names] == []

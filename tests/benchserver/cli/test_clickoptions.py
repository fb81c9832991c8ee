"""Rows of options as click's: what is taken, what the help says, which variables count."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from benchserver.cli.clickoptions import TableOption, with_options
from benchserver.options.kinds import Action, Choice, Flag, Kind, Number, Port, Text, Texts, Whole
from benchserver.options.option import NotReplayed, Option, Table

NEVER = NotReplayed("a test replays nothing")


def row(name: str, kind: Kind, **changes: Any) -> Option:
    return Option(name=name, kind=kind, help="What it is.", replay=NEVER, **changes)


TABLES = (
    Table(
        "First",
        (
            row("--count", Whole(1, 9), default=3),
            row("--wait", Number(0.5, 2.0), default=1.0),
            row("--port", Port(), default=0),
            row("--mode", Choice(("a", "b")), default=""),
            row("--name", Text("NAME"), default_text="drawn"),
            row("--tokens", Whole(1, 9), default=5, given_field="tokens_given"),
        ),
    ),
    Table(
        "Second",
        (
            row("--url", Texts("URL"), default=()),
            row("--quiet", Flag()),
            row("--secret", Flag(), hidden=True),
            row("--list", Action()),
        ),
        shared=True,
    ),
)


def leave(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        click.echo("listed")
        ctx.exit()


@pytest.fixture
def command() -> click.Command:
    @click.command()
    @with_options(TABLES, {"--list": leave}, command="play")
    def play(**options: Any) -> None:
        click.echo(repr(options))

    return play


def invoke(command: click.Command, *args: str, **env: str) -> Result:
    return CliRunner().invoke(command, args, env=env)


DEFAULTS = {
    "count": 3,
    "wait": 1.0,
    "port": 0,
    "mode": None,
    "name": None,
    "tokens": None,
    "url": (),
    "quiet": False,
    "secret": False,
}


def options_of(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = eval(result.output)
    return found


def test_defaults_and_what_nobody_gave(command: click.Command) -> None:
    assert options_of(invoke(command)) == DEFAULTS


def test_every_kind_takes_its_values(command: click.Command) -> None:
    args = ("--count", "9", "--wait", "2", "--port", "65535", "--mode", "b", "--name", "x")
    more = ("--tokens", "5", "--url", "u", "--url", "v", "--quiet", "--secret")
    assert options_of(invoke(command, *args, *more)) == {
        "count": 9,
        "wait": 2.0,
        "port": 65535,
        "mode": "b",
        "name": "x",
        "tokens": 5,
        "url": ("u", "v"),
        "quiet": True,
        "secret": True,
    }


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("--count", "10"), "10 is out of range, expected 1 to 9"),
        (("--count", "1.5"), "'1.5' is not a decimal integer"),
        (("--wait", "0.25"), "0.25 is out of range, expected 0.5 to 2"),
        (("--port", "65536"), "65536 is out of range, expected 0 to 65535"),
        (("--mode", "c"), "'c' is not one of 'a', 'b'"),
    ],
)
def test_bounds_are_those_of_the_row(
    command: click.Command, args: tuple[str, ...], text: str
) -> None:
    result = invoke(command, *args)
    assert result.exit_code == 2
    assert text in result.output


def test_an_action_is_done_first_and_reaches_no_command(command: click.Command) -> None:
    assert invoke(command, "--list", "--count", "99").output == "listed\n"


def test_variables_of_the_command_and_shared_ones(command: click.Command) -> None:
    env = {"BENCH_SERVER_PLAY_COUNT": "4", "BENCH_SERVER_COUNT": "5", "BENCH_SERVER_QUIET": "1"}
    assert options_of(invoke(command, **env)) == DEFAULTS | {"count": 4, "quiet": True}
    assert options_of(invoke(command, "--count", "6", **env))["count"] == 6


def test_a_services_address_is_not_a_port(command: click.Command) -> None:
    env = {"BENCH_SERVER_PLAY_PORT": "tcp://10.0.0.1:5555", "BENCH_SERVER_PLAY_NAME": "tcp://x"}
    assert options_of(invoke(command, **env)) == DEFAULTS | {"name": "tcp://x"}
    assert options_of(invoke(command, BENCH_SERVER_PLAY_PORT="7"))["port"] == 7


def test_the_help_of_each_row(command: click.Command) -> None:
    with command.make_context("play", []) as ctx:
        records = {
            parameter.row.name: parameter.get_help_record(ctx)
            for parameter in command.params
            if isinstance(parameter, TableOption)
        }
    assert records["--count"] == ("--count N", "What it is.  [default: 3]")
    assert records["--wait"] == ("--wait SECS", "What it is.  [default: 1]")
    assert records["--mode"] == ("--mode [a|b]", "What it is.")
    assert records["--name"] == ("--name NAME", "What it is.  [default: drawn]")
    assert records["--tokens"] == ("--tokens N", "What it is.  [default: 5]")
    assert records["--quiet"] == ("--quiet", "What it is.")
    assert records["--secret"] is None

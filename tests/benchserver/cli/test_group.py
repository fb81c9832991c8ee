"""Errors are one line each, and say where the help is."""

from __future__ import annotations

import errno

import click
import pytest
from click.testing import CliRunner, Result

from benchserver.cli.group import OneLineGroup
from benchserver.errors import BEFORE, FatalError, UsageError
from tests.benchserver.cli.commandline import invoke


def test_click_errors_point_to_the_help() -> None:
    assert invoke("--end", "x").stderr.endswith("; see bench-server --help\n")


def test_wrong_usage_of_a_command_points_to_its_own_help() -> None:
    assert invoke("serve", "--port", "x").stderr.endswith("; see bench-server serve --help\n")
    assert invoke("--end", "x").stderr.endswith("; see bench-server --help\n")


def test_options_stand_under_the_headings_of_their_tables() -> None:
    told = invoke("--help").stdout
    places = [told.index(f"\n{title}:\n") for title in ("Server", "Engine", "Output", "Other")]
    assert places == sorted(places)
    assert told.index("\nCommands:\n") > places[-1]
    assert "--help" in told[places[-1] :]


class Failing:
    """A command that raises."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def run(self) -> Result:
        @click.group(cls=OneLineGroup)
        def group() -> None: ...

        @group.command()
        def play() -> None:
            raise self.error

        return CliRunner().invoke(group, ["play"], prog_name="bench-server")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (UsageError("--x is wrong"), 2, "bench-server: error: --x is wrong\n"),
        (FatalError("no server\nthere"), 1, "bench-server: error: no server there\n"),
        (KeyboardInterrupt(), 1, f"bench-server: error: {BEFORE}\n"),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            1,
            "bench-server: error: cannot write: No space left on device\n",
        ),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(error: BaseException, code: int, text: str) -> None:
    result = Failing(error).run()
    assert (result.exit_code, result.stderr.lstrip("\n")) == (code, text)

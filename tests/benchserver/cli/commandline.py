"""The command line in this process, for tests."""

from __future__ import annotations

from types import SimpleNamespace

from click.testing import CliRunner, Result

from benchserver.cli.main import cli

Runs = list[SimpleNamespace]
"""What the runs would be asked for, by field."""


def invoke(*args: str, **env: str) -> Result:
    """Run a command line with these variables."""
    return CliRunner().invoke(cli, args, env=env, prog_name="bench-server")


def assert_one_line(result: Result, code: int, *parts: str) -> None:
    """Fail unless it ended with this code and one error line that has all parts."""
    assert result.exit_code == code, (result.output, result.exception)
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    line = result.stderr
    assert line.startswith("bench-server: error: ")
    assert line.count("\n") == 1
    assert line.endswith("\n")
    for part in parts:
        assert part in line

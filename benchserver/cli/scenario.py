"""A scenario as click's command: made from its tables, run by `cli.play`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from benchserver.cli.clickoptions import with_options
from benchserver.cli.group import OneLineCommand
from benchserver.scenarios.command import Command


def play(command: Command[Any], ctx: click.Context, options: Mapping[str, Any]) -> int:
    """Run a scenario, and return the exit code."""
    # Loaded here: the help, and wrong usage of an option, need no configuration.
    from benchserver.cli.play import play_scenario

    return play_scenario(command, ctx, options)


def scenario_command(command: Command[Any]) -> click.Command:
    """Return the command that runs a scenario."""

    @click.command(command.name, cls=OneLineCommand, help=command.help)
    @with_options(command.tables, command=command.name)
    @click.pass_context
    def run(ctx: click.Context, /, **options: Any) -> int:
        return play(command, ctx, options)

    return run

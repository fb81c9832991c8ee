"""`bench-server` and its commands; every option also from BENCH_SERVER_* and --config."""

from __future__ import annotations

from typing import Any

import click

from benchserver.cli.breakeven import breakeven
from benchserver.cli.clickoptions import with_options
from benchserver.cli.compare import compare
from benchserver.cli.configfile import load_config
from benchserver.cli.eager import print_version
from benchserver.cli.group import OneLineGroup
from benchserver.cli.report import report
from benchserver.cli.scenario import play, scenario_command
from benchserver.cli.selftest import selftest
from benchserver.cli.serve import serve
from benchserver.cli.sweep import sweep
from benchserver.errors import UsageError
from benchserver.scenarios.baseline.command import COMMAND as BASELINE
from benchserver.scenarios.command import Command
from benchserver.scenarios.load.command import COMMAND as LOAD
from benchserver.scenarios.ping.command import COMMAND as PING
from benchserver.scenarios.soak.command import COMMAND as SOAK


@click.group(
    cls=OneLineGroup,
    invoke_without_command=True,
    help=BASELINE.help,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@with_options(BASELINE.tables, {"--config": load_config, "--version": print_version})
@click.pass_context
def cli(ctx: click.Context, /, **options: Any) -> int:
    """Run the baseline, unless there is a command."""
    if ctx.invoked_subcommand is None:
        return play(BASELINE, ctx, options)
    _refuse_lost_options(ctx, ctx.invoked_subcommand)
    return 0


def _refuse_lost_options(ctx: click.Context, command: str) -> None:
    """Refuse what stands before a command, which would not hear of it; --config is for all."""
    for parameter in ctx.command.params:
        option, source = parameter.opts[0], ctx.get_parameter_source(parameter.name or "")
        if option != "--config" and source is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(
                f"{option} stands before {command}, which does not hear of it there; write "
                f"bench-server {command} {option}, if {command} has that option"
            )


SCENARIOS: tuple[Command[Any], ...] = (LOAD, SOAK, PING)
"""Those with a command of their own."""

OTHERS = (serve, selftest, sweep, breakeven, report, compare)

for command in (*map(scenario_command, SCENARIOS), *OTHERS):
    cli.add_command(command)

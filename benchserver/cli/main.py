"""`bench-server` and its commands; every option also from BENCH_SERVER_* and --config."""

from __future__ import annotations

from typing import Any

import click

from benchserver.cli.clickoptions import with_options
from benchserver.cli.configfile import load_config
from benchserver.cli.eager import print_version
from benchserver.cli.group import OneLineGroup
from benchserver.cli.selftest import selftest
from benchserver.cli.serve import serve
from benchserver.options.bench import BENCH


@click.group(
    cls=OneLineGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@with_options(BENCH, {"--config": load_config, "--version": print_version})
@click.pass_context
def cli(ctx: click.Context, /, **options: Any) -> int:
    """Prove that an LMCache MP cache server returns every byte, and measure it.

    Without a command: the baseline run.  Exit code 0: everything asked for was proven; 1: something
    failed or stayed unproven; 2: wrong usage.
    """
    if ctx.invoked_subcommand is not None:
        return 0
    from benchserver.cli.baseline import run_baseline

    return run_baseline(ctx, options)


COMMANDS = (serve, selftest)
for command in COMMANDS:
    cli.add_command(command)

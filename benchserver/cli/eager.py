"""Options that print something and leave, whatever else is on the command line."""

from __future__ import annotations

import click


def print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Print the version; a click callback."""
    if value:
        from importlib.metadata import PackageNotFoundError, version

        try:
            click.echo(f"bench-server {version('bench-server')}")
        except PackageNotFoundError:
            click.echo("bench-server (not installed)")
        ctx.exit()

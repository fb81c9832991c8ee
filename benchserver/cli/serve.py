"""`bench-server serve`: options to a ServerConfig, and the server until a signal."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from benchserver.cli.clickoptions import with_options
from benchserver.cli.group import OneLineCommand
from benchserver.cli.httptoken import hide_from_process_list, read_token
from benchserver.cli.output import Output
from benchserver.ending import Ending
from benchserver.errors import EXIT_FAILED, EXIT_OK
from benchserver.limits import allow_descriptors_of_clients, require, server_need
from benchserver.options.option import fields_of
from benchserver.outlet import Outlet, outlet_for
from benchserver.refserver.options import SERVE

if TYPE_CHECKING:
    from benchserver.refserver.config import ServerConfig

_GIB = 1 << 30
_SAY_WITHIN_S = 1.0


def print_faults(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Print the faults, and leave; a click callback."""
    if value:
        for line in fault_lines():
            click.echo(line)
        ctx.exit()


@click.command(cls=OneLineCommand)
@with_options(SERVE, {"--help-faults": print_faults}, command="serve")
@click.pass_obj
def serve(ending: Ending, /, **options: Any) -> int:
    """Run the embedded MP server (for newcomers and self-tests)."""
    # Before the server is loaded: it may not even load within the limits.
    require(server_need(l1_bytes=_l1_bytes(options)))
    allow_descriptors_of_clients()
    return run_server(options, ending)


def _l1_bytes(options: Mapping[str, Any]) -> int:
    return int(options["l1_size_gb"] * _GIB)


def server_config(options: Mapping[str, Any]) -> ServerConfig:
    """Return the server's configuration; UsageError for what cannot be asked for."""
    from benchserver.refserver.config import ServerConfig

    token = read_token(options["http_token"], options["http_token_file"])
    if token:
        hide_from_process_list(token)
    fields = fields_of(SERVE, options) | {"l1_bytes": _l1_bytes(options), "http_token": token}
    return ServerConfig(**fields)


def run_server(options: Mapping[str, Any], ending: Ending) -> int:
    """Serve until SIGINT, SIGTERM, SIGHUP or (hidden) the end of standard input; return 0.

    1, if what it said could not be written.
    """
    import asyncio

    from benchserver.cuda import mark
    from benchserver.refserver.gpu.runtime import must_leave_at_once

    config = server_config(options)
    output, log = Output(ending), outlet_for(sys.stderr)
    ending.undo_last(mark.remove_own_files)
    # Python would wait for threads that are stuck in CUDA or load torch.
    ending.watch(lambda _: not must_leave_at_once())
    with ending.installed():
        asyncio.run(_serve(config, (output.outlet, log), ending, options["stop_with_stdin"]))
    log.drain(_SAY_WITHIN_S)
    return output.settled(EXIT_OK, lambda _: EXIT_FAILED)


def fault_lines() -> list[str]:
    """Return the list of faults, with the syntax of a switch."""
    from benchserver.refserver.faults.moments import FORMS
    from benchserver.refserver.faults.settings import PARAMS
    from benchserver.refserver.faults.table import FAULTS

    lines = [
        "A switch is NAME[:ARGS][@WHEN].  ARGS are values or NAME=VALUE, with commas between them.",
        f"WHEN is {FORMS}: which of the calls that the fault is meant for.  [default: all]",
        "",
    ]
    width = max(len(fault.form) for fault in FAULTS.values())
    for fault in FAULTS.values():
        harm = " (harmless)" if fault.harmless else ""
        lines.append(f"{fault.form:<{width}}  {fault.meaning}{harm}")
    lines += ["", *(f"{param.name}: {param.expected}" for param in PARAMS.values())]
    return lines


async def _serve(
    config: ServerConfig, outlets: tuple[Outlet, Outlet], ending: Ending, stop_with_stdin: bool
) -> None:
    import asyncio

    from benchserver.refserver.server import serve as serve_until

    out, log = outlets
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    if stop_with_stdin:
        loop.add_reader(sys.stdin.fileno(), stop.set)

    def on_ready(rpc_port: int, http_port: int) -> None:
        for line in _warnings(config, rpc_port, http_port):
            log.line(line)
        if stop_with_stdin:
            out.line(json.dumps({"rpc_port": rpc_port, "http_port": http_port}))
            return
        for line in _banner(config, rpc_port, http_port):
            out.line(line)

    with ending.running(lambda: loop.call_soon_threadsafe(stop.set), patient=True):
        await serve_until(config, on_ready=on_ready, stop=stop, journal=log.line)


def _warnings(config: ServerConfig, rpc_port: int, http_port: int) -> list[str]:
    """Return what is open to others than this machine."""
    from benchserver.cli.exposure import exposure_line

    line = exposure_line(
        rpc=(config.host, rpc_port),
        http=(config.http_host, http_port),
        has_token=bool(config.http_token),
    )
    return [line] if line else []


def _banner(config: ServerConfig, rpc_port: int, http_port: int) -> list[str]:
    """Return what is said once the server answers: where, and what is not as it should be."""
    from benchserver.cli.exposure import shown_host

    lines = [
        f"Embedded MP server (no evidence about LMCache): "
        f"tcp://{shown_host(config.host)}:{rpc_port}, "
        f"http://{shown_host(config.http_host)}:{http_port}, chunk size {config.chunk_size}; "
        "Ctrl-C stops it",
        *_unverifiable_lines(config.l2),
    ]
    if config.faults:
        lines.append(f"Faults on: {' '.join(config.faults)}")
    return lines


def _unverifiable_lines(urls: Sequence[str]) -> list[str]:
    """Return a line for each tier that gives back other bytes than it was given."""
    from benchserver.refserver.tiers.config import MockConfig
    from benchserver.refserver.tiers.url import parse_tier_url

    tiers = [(url, parse_tier_url(url)) for url in urls]
    return [
        f"L2 {url} keeps sizes and no bytes: reads give zeros, which fail every bench that looks"
        for url, tier in tiers
        if isinstance(tier, MockConfig) and not tier.keeps_data
    ]

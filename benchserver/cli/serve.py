"""`bench-server serve`: options to a ServerConfig, and the server until a signal."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from benchserver.cli.exposure import exposure_line, shown_host
from benchserver.cli.httptoken import hide_from_process_list, read_token
from benchserver.cli.output import Output
from benchserver.cuda import mark
from benchserver.ending import Ending
from benchserver.errors import EXIT_FAILED, EXIT_OK
from benchserver.outlet import Outlet, outlet_for
from benchserver.refserver.config import ServerConfig
from benchserver.refserver.gpu.runtime import must_leave_at_once
from benchserver.refserver.server import serve
from benchserver.refserver.tiers.config import MockConfig
from benchserver.refserver.tiers.url import parse_tier_url

_GIB = 1 << 30
_SAY_WITHIN_S = 1.0
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_server(options: Mapping[str, Any], ending: Ending) -> int:
    """Serve until SIGINT, SIGTERM, SIGHUP or (hidden) the end of standard input; return 0.

    1, if what it said could not be written.

    Does not return, but ends the process, where a thread is stuck in CUDA or loads torch.
    """
    token = read_token(options["http_token"], options["http_token_file"])
    if token:
        hide_from_process_list(token)
    config = ServerConfig(
        l1_bytes=int(options["l1_size_gb"] * _GIB),
        release=options["release"],
        host=options["host"],
        port=options["port"],
        http_host=options["http_host"],
        http_port=options["http_port"],
        chunk_size=options["chunk_size"],
        transfer_mode=options["supported_transfer_mode"],
        shm_name=options["shm_name"],
        l2=tuple(options["l2"]),
        l2_write=options["l2_write"],
        faults=tuple(options["faults"]),
        gpu=options["gpu"],
        worker_reap_timeout_s=options["worker_reap_timeout_seconds"],
        worker_registration_grace_s=options["worker_registration_grace_seconds"],
        session_ttl_s=options["session_ttl_seconds"],
        l1_write_ttl_s=options["l1_write_ttl_seconds"],
        l1_read_ttl_s=options["l1_read_ttl_seconds"],
        eviction_trigger_watermark=options["eviction_trigger_watermark"],
        eviction_ratio=options["eviction_ratio"],
        http_token=token,
    )
    output, log = Output(ending), outlet_for(sys.stderr)
    try:
        asyncio.run(_serve(config, output.outlet, log, stop_with_stdin=options["stop_with_stdin"]))
        log.drain(_SAY_WITHIN_S)
        return output.settled(EXIT_OK, lambda _: EXIT_FAILED)
    finally:
        # Python takes its handlers out before it exits, and a late signal would kill it then.
        for number in _STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        if must_leave_at_once():
            _leave(EXIT_OK if sys.exc_info()[0] is None else EXIT_FAILED)


def _leave(code: int) -> None:
    """End the process now, or, where an error is still to be said, in a moment.

    Python's own way would wait for threads that may never end.
    """

    def end() -> None:
        mark.remove_own_files()
        os._exit(code)

    if code == EXIT_OK:
        end()
    late = threading.Timer(_SAY_WITHIN_S, end)
    late.daemon = True
    late.start()


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


async def _serve(config: ServerConfig, out: Outlet, log: Outlet, *, stop_with_stdin: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    _stop_by_signal(loop, stop)
    if stop_with_stdin:
        loop.add_reader(sys.stdin.fileno(), stop.set)

    def on_ready(rpc_port: int, http_port: int) -> None:
        warning = exposure_line(
            rpc=(config.host, rpc_port),
            http=(config.http_host, http_port),
            has_token=bool(config.http_token),
        )
        if warning:
            log.line(warning)
        if stop_with_stdin:
            out.line(json.dumps({"rpc_port": rpc_port, "http_port": http_port}))
            return
        out.line(
            f"Embedded MP server (no evidence about LMCache): "
            f"tcp://{shown_host(config.host)}:{rpc_port}, "
            f"http://{shown_host(config.http_host)}:{http_port}, chunk size {config.chunk_size}; "
            "Ctrl-C stops it"
        )
        for line in _unverifiable_lines(config.l2):
            out.line(line)
        if config.faults:
            out.line(f"Faults on: {' '.join(config.faults)}")

    await serve(config, on_ready=on_ready, stop=stop, journal=log.line)


def _unverifiable_lines(urls: Sequence[str]) -> list[str]:
    """Return a line for each tier that gives back other bytes than it was given."""
    tiers = [(url, parse_tier_url(url)) for url in urls]
    return [
        f"L2 {url} keeps sizes and no bytes: reads give zeros, which fail every bench that looks"
        for url, tier in tiers
        if isinstance(tier, MockConfig) and not tier.keeps_data
    ]


def _stop_by_signal(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Let signals stop the server; later ones, until the process is gone, change nothing.

    The loop's own handlers would end with the loop, and a second signal would then kill.
    """

    def on_signal(*_: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: the server has stopped already
            loop.call_soon_threadsafe(stop.set)

    for number in _STOP_SIGNALS:
        # As at the process's start: what nohup ignores stays ignored.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, on_signal)

"""`bench-server serve`: options to a ServerConfig, and the server until a signal."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from typing import Any

from benchserver.refserver.config import ServerConfig
from benchserver.refserver.server import serve

_GIB = 1 << 30


def run_server(options: Mapping[str, Any]) -> int:
    """Serve until SIGINT, SIGTERM or (hidden) the end of standard input; return 0."""
    config = ServerConfig(
        l1_bytes=int(options["l1_size_gb"] * _GIB),
        host=options["host"],
        port=options["port"],
        http_host=options["http_host"],
        http_port=options["http_port"],
        chunk_size=options["chunk_size"],
        transfer_mode=options["supported_transfer_mode"],
        shm_name=options["shm_name"],
        l2=tuple(options["l2"]),
        faults=tuple(options["faults"]),
    )
    asyncio.run(_serve(config, stop_with_stdin=options["stop_with_stdin"]))
    return 0


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


async def _serve(config: ServerConfig, *, stop_with_stdin: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if stop_with_stdin:
        loop.add_reader(sys.stdin.fileno(), stop.set)

    def on_ready(rpc_port: int, http_port: int) -> None:
        if stop_with_stdin:
            print(json.dumps({"rpc_port": rpc_port, "http_port": http_port}), flush=True)
            return
        print(
            f"Embedded MP server (no evidence about LMCache): tcp://{config.host}:{rpc_port}, "
            f"http://{config.http_host}:{http_port}, chunk size {config.chunk_size}; "
            "Ctrl-C stops it",
            flush=True,
        )
        if config.faults:
            print(f"Faults on: {' '.join(config.faults)}", flush=True)

    await serve(config, on_ready=on_ready, stop=stop)

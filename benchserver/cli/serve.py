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
    )
    asyncio.run(_serve(config, stop_with_stdin=options["stop_with_stdin"]))
    return 0


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

    await serve(config, on_ready=on_ready, stop=stop)

"""The proxy as a process, for benches of any kind.

    python -m tests.mitm --fault NAME --rpc-url tcp://HOST:PORT --url http://HOST:PORT

Prints one JSON line with rpc_port and http_port, and ends with standard input or SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from urllib.parse import urlsplit

from tests.mitm.faults import FAULTS
from tests.mitm.running import DELAY_S, Urls, serve


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mitm", description=__doc__)
    parser.add_argument("--fault", choices=sorted(FAULTS), required=True)
    parser.add_argument("--rpc-url", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--port-file", help="write the ready line there, too")
    parser.add_argument("--delay-s", type=float, default=DELAY_S, help="of late_reply")
    parser.add_argument("--kill-pid", type=int, help="the process that kill_server kills")
    return parser.parse_args()


def _port(url: str) -> int:
    return urlsplit(url).port or 0


async def _main(arguments: argparse.Namespace) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_reader(sys.stdin.fileno(), stop.set)

    def on_ready(urls: Urls) -> None:
        ports = {"rpc_port": _port(urls.rpc_url), "http_port": _port(urls.http_url)}
        line = json.dumps(ports)
        if arguments.port_file:
            Path(arguments.port_file).write_text(line + "\n")
        print(line, flush=True)

    def kill() -> None:
        if arguments.kill_pid:
            os.kill(arguments.kill_pid, signal.SIGKILL)

    server = Urls(rpc_url=arguments.rpc_url, http_url=arguments.url)
    fault = FAULTS[arguments.fault]
    await serve(fault, server, on_ready=on_ready, stop=stop, delay_s=arguments.delay_s, kill=kill)


if __name__ == "__main__":
    asyncio.run(_main(_arguments()))

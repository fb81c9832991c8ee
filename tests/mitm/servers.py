"""Starts servers for tests, waits until they serve, and stops only what it started."""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.mitm.bench import ROOT, bench_environment
from tests.mitm.running import Urls
from tests.real.serverprocess import await_end, running_server

_EMBEDDED_READY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that this process started."""

    urls: Urls
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """Kill it, as kill -9 does."""
        self.process.kill()
        self.process.wait()


@contextmanager
def embedded_server(
    *options: str,
    stderr: IO[bytes] | None = None,
    ready_s: float = _EMBEDDED_READY_S,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Run our embedded server; `stderr` None: what it writes there goes to ours."""
    command = [sys.executable, "-m", "benchserver", "serve", "--port", "0", "--http-port", "0"]
    command += ["--stop-with-stdin", "--l1-size-gb", "0.0625", *options]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        cwd=ROOT,
        env={**bench_environment(), **(environment or {})},
        start_new_session=True,
    )
    try:
        yield Server(urls=_read_ports(process, ready_s), process=process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await_end(process)
        assert process.stdout is not None
        process.stdout.close()


def _read_ports(process: subprocess.Popen[bytes], ready_s: float) -> Urls:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        assert selector.select(ready_s), "the embedded server was not ready in time"
    ports = json.loads(process.stdout.readline())
    return Urls(
        rpc_url=f"tcp://127.0.0.1:{ports['rpc_port']}",
        http_url=f"http://127.0.0.1:{ports['http_port']}",
    )


@contextmanager
def real_server(python: str, log: Path, options: Sequence[str]) -> Iterator[Server]:
    """Run the real LMCache server of the environment that `python` belongs to."""
    with running_server(python, options, log=log) as server:
        urls = Urls(rpc_url=server.rpc_url, http_url=server.http_url)
        yield Server(urls=urls, process=server.process)

"""Starts servers for tests, waits until they serve, and stops only what it started."""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mitm.bench import ROOT, bench_environment
from tests.mitm.running import Urls

_EMBEDDED_READY_S = 20.0
_REAL_READY_S = 90.0
_STOP_WITHIN_S = 20.0
_POLL_S = 0.1


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
def embedded_server(*options: str) -> Iterator[Server]:
    """Run our embedded server."""
    command = [sys.executable, "-m", "benchserver", "serve", "--port", "0", "--http-port", "0"]
    command += ["--stop-with-stdin", "--l1-size-gb", "0.0625", *options]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=bench_environment(),
        start_new_session=True,
    )
    try:
        yield Server(urls=_read_ports(process), process=process)
    finally:
        _stop(process)


def _read_ports(process: subprocess.Popen[bytes]) -> Urls:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        assert selector.select(_EMBEDDED_READY_S), "the embedded server was not ready in time"
    ports = json.loads(process.stdout.readline())
    return Urls(
        rpc_url=f"tcp://127.0.0.1:{ports['rpc_port']}",
        http_url=f"http://127.0.0.1:{ports['http_port']}",
    )


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def real_server(python: str, log: Path, options: Sequence[str]) -> Iterator[Server]:
    """Run the real LMCache server of the environment that `python` belongs to."""
    rpc_port, http_port = free_port(), free_port()
    command = [str(Path(python).parent / "lmcache"), "server"]
    command += ["--host", "127.0.0.1", "--port", str(rpc_port)]
    command += ["--http-host", "127.0.0.1", "--http-port", str(http_port)]
    command += ["--chunk-size", "256", "--l1-size-gb", "1", "--eviction-policy", "LRU"]
    command += ["--max-workers", "1", *options]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LMCACHE_TRACK_USAGE": "false"},
            start_new_session=True,
        )
    urls = Urls(rpc_url=f"tcp://127.0.0.1:{rpc_port}", http_url=f"http://127.0.0.1:{http_port}")
    try:
        _await_health(process, urls.http_url, log)
        yield Server(urls=urls, process=process)
    finally:
        _stop(process)


def _await_health(process: subprocess.Popen[bytes], http_url: str, log: Path) -> None:
    deadline = time.monotonic() + _REAL_READY_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the real server ended: {_tail(log)}")
        try:
            with urllib.request.urlopen(f"{http_url}/healthcheck", timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(_POLL_S)
    raise RuntimeError(f"the real server was not ready within {_REAL_READY_S:g} s: {_tail(log)}")


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    else:
        process.terminate()
    try:
        process.wait(_STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()

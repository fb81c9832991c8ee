"""One real LMCache server as a child process: started on loopback, awaited, stopped.

Knows no release: which options a server needs, the caller says. Standard library alone, since
`scripts/real_server` runs it with the python of the server's own environment.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
READY_WITHIN_S = 90.0
STOP_WITHIN_S = 20.0
_ANSWER_WITHIN_S = 2.0
_POLL_S = 0.1
_TAIL_CHARS = 2000
_STDERR = 2
_PORTS = range(20000, 32768)
"""Where Linux takes no port for outgoing connections by default: a server binds seconds later."""

_TRIES = 1000


class ServerFailedError(RuntimeError):
    """The server cannot be started, ended, or was not ready in time; the text says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProcess:
    """A server that serves, on two ports of the loopback address."""

    process: subprocess.Popen[bytes]
    rpc_port: int
    http_port: int
    ready_s: float

    @property
    def rpc_url(self) -> str:
        """Return what `--rpc-url` takes."""
        return f"tcp://{HOST}:{self.rpc_port}"

    @property
    def http_url(self) -> str:
        """Return what `--url` takes."""
        return f"http://{HOST}:{self.http_port}"


@contextmanager
def held_port(port: int = 0) -> Iterator[int]:
    """Hold a port (0: any free one) until the block ends: nobody who also holds gets it meanwhile.

    A server that sets SO_REUSEADDR, as they do, can listen there all the same.  Raises
    ServerFailedError.
    """
    with socket.socket() as holder:
        for _ in range(_TRIES):
            chosen = port or random.choice(_PORTS)
            try:
                if port:  # what an earlier server has just left is free
                    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                holder.bind((HOST, chosen))
            except OSError as error:
                if port:  # somebody else's server would answer our health checks
                    raise ServerFailedError(
                        f"port {port} of {HOST} is not free: {error}"
                    ) from error
                continue
            # Not before: two holders would get the same port.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            yield chosen
            return
    raise ServerFailedError(f"no port from {_PORTS.start} to {_PORTS.stop - 1} is free")


def free_ports(count: int) -> list[int]:
    """Return ports that are free now, all different; nobody holds them."""
    with ExitStack() as held:
        return [held.enter_context(held_port()) for _ in range(count)]


def server_command(python: str, rpc_port: int, http_port: int, options: Sequence[str]) -> list[str]:
    """Return the command line; of two equal options the server takes the last, so ours first."""
    return [
        str(Path(python).parent / "lmcache"), "server",
        "--host", HOST, "--port", str(rpc_port),
        "--http-host", HOST, "--http-port", str(http_port),
        "--chunk-size", "256", "--l1-size-gb", "1", "--eviction-policy", "LRU",
        "--max-workers", "1", *options,
    ]  # fmt: skip


@contextmanager
def running_server(
    python: str,
    options: Sequence[str],
    *,
    log: Path | None = None,
    rpc_port: int = 0,
    http_port: int = 0,
) -> Iterator[ServerProcess]:
    """Run the server of the environment that `python` belongs to; port 0 is any free one.

    What the server says goes to `log`, or to our stderr. Raises ServerFailedError.
    """
    with held_port(rpc_port) as rpc, held_port(http_port) as http:
        started = time.monotonic()
        process = _start(server_command(python, rpc, http, options), log)
        try:
            _await_health(process, f"http://{HOST}:{http}", log)
            yield ServerProcess(
                process=process,
                rpc_port=rpc,
                http_port=http,
                ready_s=time.monotonic() - started,
            )
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, and see to it that it does."""
    process.terminate()
    await_end(process)


def await_end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a process, and kill it if it has not come within STOP_WITHIN_S."""
    try:
        process.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _start(command: Sequence[str], log: Path | None) -> subprocess.Popen[bytes]:
    with ExitStack() as files:
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=files.enter_context(log.open("wb")) if log else _STDERR,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LMCACHE_TRACK_USAGE": "false"},
                start_new_session=True,  # a Ctrl-C is ours to handle
            )
        except OSError as error:
            raise ServerFailedError(f"cannot start {command[0]}: {error}") from error


def _await_health(process: subprocess.Popen[bytes], http_url: str, log: Path | None) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServerFailedError(
                f"the real server ended with code {process.returncode} before it was ready"
                f"{_tail(log)}"
            )
        try:
            with urllib.request.urlopen(f"{http_url}/healthcheck", timeout=_ANSWER_WITHIN_S):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(_POLL_S)
    raise ServerFailedError(
        f"the real server was not ready within {READY_WITHIN_S:g} s{_tail(log)}"
    )


def _tail(log: Path | None) -> str:
    return f": {log.read_text(errors='replace')[-_TAIL_CHARS:]}" if log else "; see above"

"""A server of a cell's own: started on free ports, waited for, stopped.

Each run has a fresh one, so that each begins cold.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchserver.clock import NS_PER_S, RealClock
from benchserver.errors import FatalError
from benchserver.sweep.guarded import Guarded, started
from benchserver.sweep.template import HTTP_PORT, RPC_PORT, filled, variables_in

HOST = "127.0.0.1"
_HEALTH_PATHS = ("/healthcheck", "/api/healthcheck")
_PORTS = range(20000, 32768)
"""Where Linux takes no port for outgoing connections by default: a server binds seconds later."""

_TRIES = 1000
_POLL_S = 0.05
_ASK_WITHIN_S = 2.0
_OK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where it is to listen; `http` None: its command has no HTTP port."""

    rpc: int
    http: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How a server is run: what it may take until it is ready, and, when asked, until its end."""

    environment: Mapping[str, str]
    ready_s: float
    stop_s: Callable[[], float]


def ports_for(words: Sequence[str]) -> Ports:
    """Return free ports of the loopback address for a command; FatalError if there are none."""
    with socket.socket() as rpc, socket.socket() as http:
        ports = _bound(rpc), _bound(http)
        return Ports(rpc=ports[0], http=ports[1] if HTTP_PORT in variables_in(words) else None)


def _bound(holder: socket.socket) -> int:
    for _ in range(_TRIES):
        port = _PORTS.start + secrets.randbelow(len(_PORTS))
        with contextlib.suppress(OSError):
            holder.bind((HOST, port))
            return port
    raise FatalError(f"no port from {_PORTS.start} to {_PORTS.stop - 1} of {HOST} is free")


def command_of(words: Sequence[str], ports: Ports) -> tuple[str, ...]:
    """Return the command with its ports."""
    return filled(words, {RPC_PORT: str(ports.rpc), HTTP_PORT: str(ports.http)})


@asynccontextmanager
async def serving(
    command: Sequence[str], ports: Ports, log: Path, how: Serving
) -> AsyncIterator[Guarded]:
    """Run a server; FatalError if it ends, or is not ready in time, with what it said last."""
    async with started(command, log, how.environment) as server:
        try:
            await _ready(server, ports, log, how.ready_s)
            yield server
        finally:
            await server.stop(how.stop_s())


async def _ready(server: Guarded, ports: Ports, log: Path, within_s: float) -> None:
    clock = RealClock()
    deadline_ns = clock.now_ns() + int(within_s * NS_PER_S)
    while clock.now_ns() < deadline_ns:
        if await server.wait(_POLL_S) is not None:
            raise FatalError(
                f"the server ended before it was ready, exit code {server.exit_code}; it said: "
                f"{server.last_words()} (all of it: {log})"
            )
        if await _listens(ports.rpc) and (ports.http is None or await _is_well(ports.http)):
            return
    raise FatalError(
        f"the server was not ready within {within_s:g} s (--ready-within); it said: "
        f"{server.last_words()} (all of it: {log})"
    )


async def _listens(port: int) -> bool:
    with contextlib.suppress(OSError, asyncio.TimeoutError, TimeoutError):
        opening = asyncio.open_connection(HOST, port)
        _, writer = await asyncio.wait_for(opening, _ASK_WITHIN_S)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True
    return False


async def _is_well(port: int) -> bool:
    loop = asyncio.get_running_loop()
    for path in _HEALTH_PATHS:
        if await loop.run_in_executor(None, _answers, f"http://{HOST}:{port}{path}"):
            return True
    return False


def _answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_ASK_WITHIN_S) as answer:
            return bool(answer.status == _OK)
    except (OSError, ValueError):
        return False

"""Connections are given up for others, and accepting backs off when it fails."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from benchserver.clock import VirtualClock
from benchserver.refserver.front import listener as listener_module
from benchserver.refserver.front.listener import Connections, Listener, connection_limit
from benchserver.refserver.journal import Journal

WITHIN_S = 20.0


class Wire(asyncio.Transport):
    """A transport without a network; its descriptor is closed when it is aborted."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = socket.socket()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.opened if name == "socket" else default

    def abort(self) -> None:
        self.opened.close()

    @property
    def is_open(self) -> bool:
        return self.opened.fileno() >= 0


@pytest.fixture
def wires() -> Any:
    made = [Wire() for _ in range(4)]
    yield made
    for wire in made:
        wire.abort()


def held(wires: list[Wire], limit: int) -> Connections:
    connections = Connections(limit)
    for wire in wires:
        connections.add(wire)
    return connections


def test_the_one_that_has_waited_longest_makes_room(wires: list[Wire]) -> None:
    connections = held(wires, 4)
    with connections.busy(wires[0]):
        pass  # now it is the last that began to wait
    assert connections.make_room()
    assert [wire.is_open for wire in wires] == [True, False, True, True]
    assert len(connections) == 3
    assert connections.make_room()
    assert sum(wire.is_open for wire in wires) == 3


def test_busy_connections_stay_and_nobody_else_is_let_in(wires: list[Wire]) -> None:
    connections = held(wires[:2], 2)
    with connections.busy(wires[0]), connections.busy(wires[1]):
        assert not connections.make_room()
        with connections.busy(wires[0]):  # once more: nothing is forgotten at its end
            pass
        assert not connections.make_room()
    assert connections.make_room()
    assert [wire.is_open for wire in wires[:2]] == [True, False]


def test_what_is_closed_is_not_counted(wires: list[Wire]) -> None:
    connections = held(wires, 4)
    wires[2].abort()
    with connections.busy(wires[3]):
        wires[3].abort()
    assert len(connections) == 2
    with connections.busy(wires[2]), connections.busy(None):
        assert len(connections) == 2


@pytest.mark.parametrize(
    ("soft", "limit"), [(200, 50), (8, 4), (100_000, 256), (resource.RLIM_INFINITY, 256)]
)
def test_the_limit_is_a_share_of_the_descriptors(
    soft: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (soft, soft))
    assert connection_limit() == limit


@asynccontextmanager
async def listening(limit: int = 4) -> AsyncIterator[tuple[int, list[str]]]:
    """A listener that runs: its port, and the lines it says."""
    lines: list[str] = []
    listener = Listener(asyncio.Protocol, Connections(limit), Journal(VirtualClock(), lines.append))
    port = await listener.bind("127.0.0.1", 0)
    running = asyncio.create_task(listener.run())
    try:
        yield port, lines
    finally:
        running.cancel()
        await asyncio.wait([running])
        listener.close()


@pytest.mark.asyncio
async def test_accepting_is_tried_again_a_little_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "RETRY_S", 0.01)

    async with listening(limit=4) as (port, lines):
        loop = asyncio.get_running_loop()
        accept, failures = loop.sock_accept, [errno.EMFILE, errno.ENFILE, errno.ECONNABORTED]
        pauses, accepting = list[float](), asyncio.Event()

        async def failing(opened: socket.socket) -> Any:
            pauses.append(loop.time())
            if len(pauses) == 5:
                accepting.set()
            if failures:
                raise OSError(failures.pop(0), "planted")
            return await accept(opened)

        monkeypatch.setattr(loop, "sock_accept", failing)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()  # the accept that was under way has taken it
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await accepting.wait()
        writer.close()
        assert await reader.read() == b""
        assert [line.rpartition(" ")[2] for line in lines] == ["planted"] * 3
        assert all(pauses[i + 1] - pauses[i] >= 0.009 for i in range(3))


@pytest.mark.asyncio
async def test_a_newcomer_is_closed_where_all_are_busy() -> None:
    async with listening(limit=0) as (port, lines):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
        assert "0 connections are busy; one more is closed" in lines[0]

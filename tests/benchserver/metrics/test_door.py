"""Connections of scrapers: few at once, none for long."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from benchserver.metrics import door as door_module
from benchserver.metrics.door import CONNECTIONS, Door
from benchserver.tasks import cancel_and_wait

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


@asynccontextmanager
async def opened(within_s: float = 3600.0) -> AsyncIterator[int]:
    """Open a door, and yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        door = Door(listening, Echo, within_s=within_s)
        letting_in = asyncio.ensure_future(door.let_in())
        try:
            yield listening.getsockname()[1]
            assert not letting_in.done()
        finally:
            await cancel_and_wait([letting_in])
            door.close()


async def connect(port: int) -> Connection:
    """Return a connection that was let in."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await echoed((reader, writer))
    return reader, writer


async def echoed(connection: Connection) -> None:
    reader, writer = connection
    writer.write(b"x")
    assert await asyncio.wait_for(reader.readexactly(1), 30) == b"x"


async def is_cut_off(connection: Connection) -> None:
    """Return once it is."""
    reader, writer = connection
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(reader.readexactly(1), 30)
    writer.close()


@pytest.mark.asyncio
async def test_of_too_many_the_oldest_goes() -> None:
    async with opened() as port:
        open_ = [await connect(port) for _ in range(CONNECTIONS)]
        open_.append(await connect(port))
        await is_cut_off(open_.pop(0))
        # One that leaves by itself makes room.
        open_.pop(3)[1].close()
        await echoed(open_[0])
        open_.append(await connect(port))
        for connection in open_:
            await echoed(connection)
    for connection in open_:
        await is_cut_off(connection)


@pytest.mark.asyncio
async def test_one_that_holds_on_is_cut_off() -> None:
    async with opened(within_s=0.05) as port:
        await is_cut_off(await asyncio.open_connection("127.0.0.1", port))


@pytest.mark.asyncio
async def test_without_a_descriptor_nobody_is_let_in_until_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    accept, failed = loop.sock_accept, list[int]()

    async def none_left(listening: socket.socket) -> Any:
        if len(failed) < 2:
            failed.append(errno.EMFILE)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return await accept(listening)

    monkeypatch.setattr(door_module, "_NO_ROOM_S", 0.001)
    monkeypatch.setattr(loop, "sock_accept", none_left)
    async with opened() as port:
        _, writer = await connect(port)
        writer.close()
    assert len(failed) == 2

"""A connection over ZMQ and a ROUTER on loopback that a test leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import zmq
import zmq.asyncio

from benchserver.client.zmq import ZmqConnection, ZmqConnector
from benchserver.clock import NS_PER_S, RealClock, VirtualClock
from protocol.dialects import V056
from protocol.messages import (
    Event,
)
from protocol.ops import Op

OK = b"\xa2OK"
NOOP, PING, CHUNK_SIZE = b"\x18", b"\x16", b"\x15"


class Peer:
    """A ROUTER that answers what the test tells it to; one client."""

    def __init__(self, address: str = "127.0.0.1", port: int = 0) -> None:
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.IPV6, "[" in address)
        if port:
            self._socket.bind(f"tcp://{address}:{port}")
            self.port = port
        else:
            self.port = self._socket.bind_to_random_port(f"tcp://{address}")
        self._client = b""

    async def receive(self) -> list[bytes]:
        """Return the next request's frames, without the identity."""
        self._client, *frames = await self._socket.recv_multipart()
        return frames

    async def send(self, *frames: bytes) -> None:
        await self._socket.send_multipart([self._client, *frames])

    def close(self) -> None:
        self._context.destroy(linger=0)


class ZmqLink:
    """A connection and its peer."""

    def __init__(self, peer: Peer, client: ZmqConnection, events: asyncio.Queue[Event]) -> None:
        self.peer = peer
        self.client = client
        self.events = events

    def call(self, op: Op, *args: Any, timeout_ns: int | None = None) -> asyncio.Task[Any]:
        return asyncio.create_task(self.client.call(op, *args, timeout_ns=timeout_ns))

    def assert_idle(self) -> None:
        """Fail if any entry of a call is left."""
        assert entries(self.client) == 0


@asynccontextmanager
async def linked(
    timeout_ns: int = 30 * NS_PER_S, clock: RealClock | VirtualClock | None = None
) -> AsyncIterator[ZmqLink]:
    peer, events = Peer(), asyncio.Queue[Event]()
    async with connected(f"tcp://127.0.0.1:{peer.port}", events, timeout_ns, clock) as client:
        link = ZmqLink(peer, client, events)
        try:
            yield link
        finally:
            link.peer.close()


@asynccontextmanager
async def connected(
    url: str,
    events: asyncio.Queue[Event],
    timeout_ns: int = 30 * NS_PER_S,
    clock: RealClock | VirtualClock | None = None,
) -> AsyncIterator[ZmqConnection]:
    connector = ZmqConnector(url, clock=clock or RealClock(), timeout_ns=timeout_ns)
    try:
        yield connector.open(V056, events.put_nowait)
    finally:
        await connector.close()


def entries(connection: ZmqConnection) -> int:
    """Return how many calls have an entry in any of its tables."""
    return max(
        connection._session.pending_count,
        len(connection._ops),
        len(connection._waiting),
        len(connection._early),
    )

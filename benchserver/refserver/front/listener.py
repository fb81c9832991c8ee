"""Accepts HTTP connections, and keeps their number below what the process can hold.

Knows no HTTP.  A connection is busy while the server works for it; else it waits for its client: to
send a request, to read an answer, to close.  When there are too many, the one that has waited
longest makes room for the next, so nobody can hold them all by doing nothing.  Where accepting
fails (no descriptors are left, say), it is tried again a little later, never in a busy loop.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from benchserver.refserver.journal import Journal
from benchserver.tasks import TaskScope

MAX_CONNECTIONS = 256
"""Benches have a few; a connection may hold a whole body and a whole answer."""

SHARE_OF_DESCRIPTORS = 4
"""HTTP takes a quarter of what the process may open; ZMQ, segments and tiers need the rest."""

FEWEST_CONNECTIONS = 4
BACKLOG = 1024
"""A client that comes while it is full waits a second or more, by TCP."""

RETRY_S = 0.25
"""How long no connection is accepted after that has failed."""


class Connections:
    """The open connections, those that wait for their client in the order in which they began to.

    A transport that is closing counts until its descriptor is closed: it may have much to send.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._waiting: dict[asyncio.BaseTransport, None] = {}
        self._busy: dict[asyncio.BaseTransport, None] = {}

    def __len__(self) -> int:
        self._forget_closed()
        return len(self._waiting) + len(self._busy)

    def add(self, transport: asyncio.BaseTransport) -> None:
        """Count a connection that was accepted."""
        self._waiting[transport] = None

    def make_room(self) -> bool:
        """Tell whether one more may be accepted, after the longest waiting one left if need be."""
        if len(self) < self.limit:
            return True
        for transport in self._waiting:
            del self._waiting[transport]
            if isinstance(transport, asyncio.Transport):
                transport.abort()
            return True
        return False

    @contextmanager
    def busy(self, transport: asyncio.BaseTransport | None) -> Iterator[None]:
        """Keep a connection open while the server works for it."""
        if transport is None or transport not in self._waiting:
            yield  # it is gone already
            return
        del self._waiting[transport]
        self._busy[transport] = None
        try:
            yield
        finally:
            del self._busy[transport]
            self._waiting[transport] = None

    def _forget_closed(self) -> None:
        for transport in [t for t in self._waiting if _is_closed(t)]:
            del self._waiting[transport]


def _is_closed(transport: asyncio.BaseTransport) -> bool:
    opened = transport.get_extra_info("socket")
    return opened is None or opened.fileno() < 0


def connection_limit() -> int:
    """Return how many connections this process can afford."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    share = MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else soft // SHARE_OF_DESCRIPTORS
    return max(FEWEST_CONNECTIONS, min(MAX_CONNECTIONS, share))


class Listener:
    """The listening sockets of one address."""

    def __init__(
        self,
        protocol: Callable[[], asyncio.Protocol],
        connections: Connections,
        journal: Journal,
    ) -> None:
        """`protocol` makes what serves one connection."""
        self._protocol = protocol
        self._connections = connections
        self._journal = journal
        self._sockets: list[socket.socket] = []

    async def bind(self, host: str, port: int) -> int:
        """Listen and return the port; 0 takes a free one.  Raises OSError or ValueError."""
        loop = asyncio.get_running_loop()
        # asyncio resolves and binds as ever; accepting is done here.
        server = await loop.create_server(self._protocol, host, port, start_serving=False)
        self._sockets = [opened.dup() for opened in server.sockets]
        server.close()
        for opened in self._sockets:
            opened.setblocking(False)
            opened.listen(BACKLOG)
        bound: int = self._sockets[0].getsockname()[1]
        return bound

    async def run(self) -> None:
        """Accept until cancelled."""
        async with TaskScope() as doors:
            for opened in self._sockets:
                doors.start(self._accept_from(opened))
            await doors.failure

    def close(self) -> None:
        """Stop listening."""
        for opened in self._sockets:
            opened.close()

    async def _accept_from(self, opened: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(opened)
            except OSError as error:
                # One connection less: if descriptors are short, the next one has one.
                self._connections.make_room()
                self._journal.line(f"HTTP: no connection can be accepted: {error}")
                await asyncio.sleep(RETRY_S)
                continue
            await self._serve(accepted)

    async def _serve(self, accepted: socket.socket) -> None:
        try:
            if not self._connections.make_room():
                self._journal.line(
                    f"HTTP: {self._connections.limit} connections are busy; one more is closed"
                )
                accepted.close()
                return
            loop = asyncio.get_running_loop()
            with suppress(OSError):  # its client is gone again
                transport, _ = await loop.connect_accepted_socket(self._protocol, accepted)
                self._connections.add(transport)
        except BaseException:
            accepted.close()
            raise

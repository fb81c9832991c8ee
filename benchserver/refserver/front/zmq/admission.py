"""How many clients may be connected to the ROUTER socket.

libzmq accepts every client, and when no descriptors are left it tries again without a pause, and
nothing else of the process can open one.  It reports each connection with its descriptor; those
above the limit are shut down, and libzmq closes them then.  Clients that are connected stay.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from contextlib import suppress

import zmq
from zmq.utils.monitor import parse_monitor_message

from benchserver.refserver.journal import Journal

MAX_CLIENTS = 4096
"""As many as may wait for answers."""

SHARE_OF_DESCRIPTORS = 2
"""ZMQ takes half of what the process may open."""

FEWEST_CLIENTS = 8
TURN_EVENTS = 64
"""What one turn of the event loop looks at."""


def client_limit() -> int:
    """Return how many clients this process can afford."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    share = MAX_CLIENTS if soft == resource.RLIM_INFINITY else soft // SHARE_OF_DESCRIPTORS
    return max(FEWEST_CLIENTS, min(MAX_CLIENTS, share))


class Admission:
    """Counts the connections of one socket, and ends those that are too many."""

    def __init__(self, router: zmq.Socket[bytes], journal: Journal, limit: int) -> None:
        self._journal = journal
        self._limit = limit
        self._port = 0
        self._connected: set[int] = set()
        """Their descriptors, which belong to libzmq."""
        self._router = router
        events = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED
        self._events: zmq.Socket[bytes] = router.get_monitor_socket(events)

    @property
    def count(self) -> int:
        """Return how many are connected."""
        return len(self._connected)

    def close(self) -> None:
        """Stop looking."""
        self._router.disable_monitor()
        self._events.close(linger=0)

    async def run(self, port: int) -> None:
        """Watch who comes to a port, and who leaves, until cancelled."""
        self._port = port
        loop, wake = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._events.FD, wake.set)
        try:
            while True:
                wake.clear()
                if self._take_turn():
                    await asyncio.sleep(0)
                else:
                    await wake.wait()
        finally:
            loop.remove_reader(self._events.FD)

    def _take_turn(self) -> bool:
        """Look at what has happened; tell whether there may be more."""
        came: list[int] = []
        for _ in range(TURN_EVENTS):
            try:
                message = parse_monitor_message(self._events.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                self._turn_away(came)
                return False
            if message["event"] == zmq.EVENT_ACCEPTED:
                self._connected.add(message["value"])
                came.append(message["value"])
            else:
                self._connected.discard(message["value"])
        self._turn_away(came)
        return True

    def _turn_away(self, came: list[int]) -> None:
        """End as many of those that came last as are too many."""
        surplus = min(len(came), len(self._connected) - self._limit)
        if surplus <= 0:
            return
        self._journal.line(f"{self._limit} clients are connected; turned away: {surplus}")
        for descriptor in came[-surplus:]:
            _shut_down(descriptor, self._port)


def _shut_down(descriptor: int, port: int) -> None:
    """Let libzmq see the end of a connection to a port, if the descriptor still is one."""
    with suppress(OSError):
        connection = socket.socket(fileno=descriptor)
        try:
            if connection.getsockname()[1] == port:
                connection.shutdown(socket.SHUT_RDWR)
        finally:
            connection.detach()

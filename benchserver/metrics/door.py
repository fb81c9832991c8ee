"""Connections of scrapers: few at once, and none for long.

One that hangs, or sends its request a byte a second, is cut off once its time is up.  Where there
are too many, the oldest goes: a scraper that only wants its answer has it within milliseconds, and
is not kept out by those that hold on.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import NoReturn

CONNECTIONS = 16
"""At once; each takes some kilobytes, and a descriptor."""

WITHIN_S = 10.0
"""From its begin to its end: Prometheus itself gives up after as long, unless it is told."""

_NO_ROOM_S = 0.5
"""How long nobody is let in where the system has no descriptor left, for one."""


class Door:
    """Lets connections in, and out again."""

    def __init__(
        self,
        listening: socket.socket,
        answering: Callable[[], asyncio.Protocol],
        *,
        within_s: float = WITHIN_S,
    ) -> None:
        """`answering` makes the protocol that answers one connection."""
        self._listening = listening
        self._answering = answering
        self._within_s = within_s
        self._open: dict[asyncio.Transport, asyncio.TimerHandle] = {}
        """In the order in which they came, and when each is cut off."""

    async def let_in(self) -> NoReturn:
        """Let in who comes, for as long as this runs."""
        self._listening.setblocking(False)
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listening)
                transport, _ = await loop.connect_accepted_socket(self._answering, connection)
            except OSError:  # it has gone already, or there is no room for it
                await asyncio.sleep(_NO_ROOM_S)
                continue
            self._forget_those_that_left()
            self._open[transport] = loop.call_later(self._within_s, transport.abort)
            if len(self._open) > CONNECTIONS:
                next(iter(self._open)).abort()

    def close(self) -> None:
        """Let all out, whatever waits to be sent."""
        for transport, timer in self._open.items():
            timer.cancel()
            transport.abort()
        self._open.clear()

    def _forget_those_that_left(self) -> None:
        for transport in [one for one in self._open if one.is_closing()]:
            self._open.pop(transport).cancel()

"""One DEALER connection to the server behind the proxy; replies are matched by uid."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from benchserver.tasks import cancel_and_wait

Frames = tuple[bytes, ...]


class Upstream:
    """A connection of its own for each client: servers bind threads to connections."""

    def __init__(
        self,
        context: zmq.asyncio.Context,
        url: str,
        *,
        on_stray: Callable[[Frames], None],
        on_lost: Callable[[], None],
    ) -> None:
        """`on_stray` gets replies that nobody waits for, `on_lost` a lost connection."""
        self._on_stray = on_stray
        self._on_lost = on_lost
        self._waiting: dict[bytes, asyncio.Future[Frames]] = {}
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._socket.connect(url)
        self._tasks = [
            asyncio.ensure_future(self._receive()),
            asyncio.ensure_future(self._watch()),
        ]

    async def call(self, frames: Sequence[bytes]) -> Frames:
        """Send a request and return the frames of its reply; waits for ever."""
        uid = bytes(frames[0])
        future: asyncio.Future[Frames] = asyncio.get_running_loop().create_future()
        self._waiting[uid] = future
        try:
            await self._socket.send_multipart(frames)
            return await future
        finally:
            self._waiting.pop(uid, None)

    async def close(self) -> None:
        """Close the connection."""
        await cancel_and_wait(self._tasks)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)

    async def _receive(self) -> None:
        while True:
            frames = tuple(await self._socket.recv_multipart())
            future = self._waiting.get(frames[0])
            if future is None or future.done():
                self._on_stray(frames)
            else:
                future.set_result(frames)

    async def _watch(self) -> None:
        while True:
            event = parse_monitor_message(await self._monitor.recv_multipart())
            if event["event"] == zmq.EVENT_DISCONNECTED:
                self._on_lost()

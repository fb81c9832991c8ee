"""A transparent ROUTER to DEALER proxy that writes down every message, in order of arrival.

It reads no payload, so that it records a release whose payloads nobody understands yet: a name for
each operation is all that it asks for.  Each client has its own connection to the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal

import zmq
import zmq.asyncio

from benchserver.tasks import cancel_and_wait
from tests.mitm.upstream import Frames, Upstream

MAX_MESSAGES = 10_000
"""A recorded session has tens of messages; a client that never ends must not fill the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One message, as the files in tests/golden hold it; `conn` numbers the clients from 0."""

    direction: Literal["request", "response"]
    conn: int
    op: str
    frames: Frames

    def as_json(self) -> dict[str, Any]:
        """Return what is written to the file."""
        frames = [frame.hex() for frame in self.frames]
        return {"direction": self.direction, "conn": self.conn, "op": self.op, "frames": frames}


class Recorder:
    """One front socket; create it inside a running event loop and close it."""

    def __init__(self, rpc_url: str, name_of: Callable[[bytes], str]) -> None:
        """`name_of` names the operation in a message's second frame."""
        self._url = rpc_url
        self._name_of = name_of
        self._context = zmq.asyncio.Context()
        self._front = self._context.socket(zmq.ROUTER)
        self._front.setsockopt(zmq.LINGER, 0)
        self.port = self._front.bind_to_random_port("tcp://127.0.0.1")
        self._clients: dict[bytes, tuple[int, Upstream]] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self.messages: list[Recorded] = []
        self.failure: Exception | None = None
        """What first kept it from passing a message on, or from writing it down."""
        self._server = asyncio.ensure_future(self._guard(self._serve()))

    async def settle(self, within_s: float) -> None:
        """Wait until every request has its reply, `within_s` seconds at most."""
        if self._calls:
            await asyncio.wait(set(self._calls), timeout=within_s)

    async def close(self) -> None:
        """End every connection."""
        await cancel_and_wait({self._server, *self._calls})
        for _, upstream in self._clients.values():
            await upstream.close()
        self._front.close(linger=0)
        self._context.destroy(linger=0)

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - the caller looks at `failure`
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.failure = self.failure or error

    async def _serve(self) -> None:
        while True:
            identity, *frames = await self._front.recv_multipart()
            conn, upstream = self._client(identity)
            self._note("request", conn, tuple(frames))
            call = self._guard(self._pass_on(identity, conn, upstream, tuple(frames)))
            task = asyncio.ensure_future(call)
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)

    def _client(self, identity: bytes) -> tuple[int, Upstream]:
        if identity not in self._clients:
            upstream = Upstream(
                self._context, self._url, on_stray=self._stray, on_lost=self._server_lost
            )
            self._clients[identity] = len(self._clients), upstream
        return self._clients[identity]

    async def _pass_on(self, identity: bytes, conn: int, upstream: Upstream, sent: Frames) -> None:
        reply = await upstream.call(sent)
        self._note("response", conn, reply)
        await self._front.send_multipart((identity, *reply))

    def _note(self, direction: Literal["request", "response"], conn: int, frames: Frames) -> None:
        if len(frames) < 2:
            raise ValueError(f"a {direction} of {len(frames)} frames, expected a uid and an op")
        if len(self.messages) == MAX_MESSAGES:
            raise ValueError(f"more than {MAX_MESSAGES} messages: the client was to end by itself")
        op = self._name_of(frames[1])
        self.messages.append(Recorded(direction=direction, conn=conn, op=op, frames=frames))

    def _stray(self, frames: Frames) -> None:
        self._fail(ValueError(f"the server sent a reply that nobody waits for: {frames!r:.200}"))

    def _server_lost(self) -> None:
        self._fail(ValueError("the server closed its connection"))

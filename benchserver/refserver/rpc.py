"""The ZMQ side: a ROUTER socket, and one lane of work for each client.

A lane answers its client's requests one after another, so their order is kept; lanes run side by
side, so clients do not block each other.  What cannot be read or is refused is journaled and
gets no reply, as with the real server; no bytes of a client end this one.  An error of a handler
that nobody thought of is a bug of this server, but no reason to leave its other clients: the
journal and the metrics say `unexpected`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import zmq
import zmq.asyncio

from benchserver.errors import FatalError, HarnessError
from benchserver.refserver.core import Handler
from benchserver.refserver.journal import Journal
from benchserver.refserver.meter import Fate, Meter
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.tasks import TaskScope
from protocol import codec
from protocol.dialects import V056, Dialect
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.messages import Incoming
from protocol.ops import Op

MAX_LANES = 4096
"""A lane exists only while its client waits for answers."""

MAX_WAITING = 1024
"""Requests of one client that wait for their turn; a worker has a handful."""

MAX_MESSAGE_BYTES = codec.MAX_FRAME_BYTES
SEND_HIGH_WATER = 10_000
"""Replies that wait for a client that does not read; more are dropped."""

LINGER_MS = 200
"""How long the last replies may take to leave when the server stops."""


Received = Sequence[bytes | memoryview]
"""A request's frames; large ones, inline KV data, stay where they were received."""

Frames = tuple[bytes, ...]
Send = Callable[[Frames], Awaitable[None]]
Tamper = Callable[[Incoming, Frames, Send], Awaitable[None]]
"""Sends a reply, or something else, or nothing."""


class RpcServer:
    """One ROUTER socket and the lanes behind it."""

    def __init__(
        self, handlers: Mapping[Op, Handler], *, dialect: Dialect, journal: Journal, meter: Meter
    ) -> None:
        self._handlers = handlers
        self._dialect = dialect
        self._journal = journal
        self._meter = meter
        self._deliver = self._send
        self._lanes: dict[bytes, deque[Received]] = {}
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.SNDHWM, SEND_HIGH_WATER)
        self._socket.setsockopt(zmq.LINGER, LINGER_MS)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)

    def bind(self, host: str, port: int) -> int:
        """Bind and return the port; 0 takes a free one."""
        address = f"tcp://{f'[{host}]' if ':' in host else host}"
        try:
            self._socket.setsockopt(zmq.IPV6, int(":" in host))
            self._socket.bind(f"{address}:{port or '*'}")
            bound = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        except zmq.ZMQError as error:
            raise FatalError(f"cannot listen on {address}:{port}: {error}") from error
        return int(bound.rpartition(":")[2])

    def tamper_with(self, tamper: Tamper | None) -> None:
        """Let every reply pass through a function that sends it, or not; None: through none."""
        self._deliver = self._send if tamper is None else partial(self._tampered, tamper)

    async def run(self) -> None:
        """Serve until cancelled; raises what ended a lane, such as FatalError."""
        async with TaskScope() as lanes:
            lanes.start(self._receive(lanes))
            await lanes.failure

    def close(self) -> None:
        """Close the socket; waits at most LINGER_MS for replies to leave."""
        self._socket.close()
        self._context.term()

    async def _receive(self, lanes: TaskScope) -> None:
        while True:
            identity, *frames = await self._socket.recv_multipart(copy=False)
            self._enqueue(identity.bytes, [_content(frame) for frame in frames], lanes)

    def _enqueue(self, identity: bytes, frames: Received, lanes: TaskScope) -> None:
        lane = self._lanes.get(identity)
        if lane is not None and len(lane) >= MAX_WAITING:
            self._meter.count(None, Fate.DROPPED)
            self._journal.line(f"a client has {MAX_WAITING} requests waiting; one is dropped")
        elif lane is not None:
            lane.append(frames)
        elif len(self._lanes) >= MAX_LANES:
            self._meter.count(None, Fate.DROPPED)
            self._journal.line(f"{MAX_LANES} clients are waiting; a request is dropped")
        else:
            self._lanes[identity] = deque([frames])
            lanes.start(self._work_off(identity))

    async def _work_off(self, identity: bytes) -> None:
        """Answer one client's requests until none is left."""
        lane = self._lanes[identity]
        try:
            while lane:
                await self._answer(identity, lane.popleft())
        finally:
            del self._lanes[identity]

    async def _answer(self, identity: bytes, frames: Received) -> None:
        op = None
        try:
            request = codec.decode_request(self._dialect, frames)
            op = request.op
            request = replace(request, args=in_order_of_handlers(self._dialect, request))
            handler = self._handlers.get(op)
            if handler is None:
                raise RefusalError(f"{op.value} is not served in this transfer mode")
            with self._meter.timed(op):
                reply = await self._reply(request, handler)
            sent = await self._deliver(identity, request, reply)
        except (RemoteProtocolError, RefusalError) as error:
            self._meter.count(op, Fate.REFUSED)
            self._journal.line(f"refused: {error}")
        except HarnessError:
            raise
        except Exception as error:  # noqa: BLE001 - one bug must not end what others rely on
            self._meter.count(op, Fate.UNEXPECTED)
            self._journal.line(f"unexpected: {_name_of(op)}: {type(error).__name__}: {error}")
        else:
            self._meter.count(op, Fate.ANSWERED if sent else Fate.UNANSWERED)

    async def _send(self, identity: bytes, request: Incoming, reply: Frames) -> bool:
        """Send a reply and tell whether it is on its way."""
        try:
            # Without waiting: one client that does not read must not hold up the others.
            await self._socket.send_multipart((identity, *reply), flags=zmq.DONTWAIT)
        except zmq.ZMQError as error:
            self._journal.line(f"a reply to {request.op.value} is lost: {error}")
            return False
        return True

    async def _tampered(
        self, tamper: Tamper, identity: bytes, request: Incoming, reply: Frames
    ) -> bool:
        sent = False

        async def send(frames: Frames) -> None:
            nonlocal sent
            sent = await self._send(identity, request, frames) or sent

        await tamper(request, reply, send)
        return sent

    async def _reply(self, request: Incoming, handler: Handler) -> Frames:
        result = await handler(request.args)
        try:
            return codec.encode_reply(self._dialect, request, result)
        except LocalProtocolError as error:
            raise RefusalError(f"the answer cannot be sent: {error}") from error


_LEFT_OUT: Mapping[str, Any] = {
    "engine_type": "vllm",
    "layout_hints": {},
    "engine_group_infos": [],
    "instance_id": None,
    "model_name": "",
    "force": True,
}
"""What older releases take for granted where they have no field for it."""


def in_order_of_handlers(dialect: Dialect, request: Incoming) -> tuple[Any, ...]:
    """Return a request's arguments as the handlers take them, which are written for 0.5.6.

    Raises RefusalError for a newer argument that asks for what only more KV groups would need.
    """
    row = V056.ops.get(request.op)
    if row is None or dialect is V056:
        return tuple(request.args)
    values = dialect.named(request.op, request.args)
    names = [field.name for field in row.payload]
    extra = {name: value for name, value in values.items() if name not in names and value}
    if extra:
        raise RefusalError(f"{request.op.value}: {', '.join(extra)} is not served")
    return tuple(values.get(name, _LEFT_OUT.get(name)) for name in names)


def _name_of(op: Op | None) -> str:
    return "a request that cannot be read" if op is None else op.value


def _content(frame: zmq.Frame) -> bytes | memoryview:
    return frame.bytes if len(frame) < codec.LARGE_BYTES else frame.buffer

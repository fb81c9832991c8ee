"""The ZMQ side: one lane of work for each client, behind a ROUTER socket.

A lane answers its client's requests one after another, so their order is kept; lanes run side by
side and take turns, so clients do not block each other, however much one of them sends.  What
cannot be read or is refused is journaled and gets no reply, as with the real server; no bytes of a
client end this one.  An error of a handler that nobody thought of is a bug of this server, but it
does not drop its other clients: the journal and the metrics say `unexpected`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from benchserver.errors import HarnessError
from benchserver.refserver.core import Handler
from benchserver.refserver.front.zmq.router import (
    READ_WITHIN_S,
    Frames,
    LostReplyError,
    Received,
    Router,
)
from benchserver.refserver.journal import Journal
from benchserver.refserver.meter import Fate, Meter
from benchserver.refserver.refusal import RefusalError
from benchserver.tasks import TaskScope
from protocol import codec
from protocol.dialect import Dialect
from protocol.dialects import V056
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.messages import Incoming
from protocol.ops import Op

MAX_LANES = 4096
"""A lane exists only while its client waits for answers."""

MAX_WAITING = 1024
"""Requests of one client that wait for their turn; a worker has a handful."""

MAX_WAITING_BYTES = 256 << 20
"""What these may have together; a single one may have more, KV data that comes inline."""

Send = Callable[[Frames], Awaitable[None]]
Tamper = Callable[[Incoming, Frames, Send], Awaitable[None]]
"""Sends a reply, or something else, or nothing."""


@dataclass(slots=True)
class _Lane:
    """The requests of one client that wait for their turn."""

    waiting: deque[Received] = field(default_factory=deque)
    nbytes: int = 0

    def has_room(self, nbytes: int) -> bool:
        if not self.waiting:
            return True
        return len(self.waiting) < MAX_WAITING and self.nbytes + nbytes <= MAX_WAITING_BYTES

    def put(self, request: Received) -> None:
        self.waiting.append(request)
        self.nbytes += _bytes_of(request)

    def take(self) -> Received:
        request = self.waiting.popleft()
        self.nbytes -= _bytes_of(request)
        return request


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
        self._lanes: dict[bytes, _Lane] = {}
        self._router = Router(journal)

    def bind(self, host: str, port: int) -> int:
        """Bind and return the port; 0 takes a free one."""
        return self._router.bind(host, port)

    def tamper_with(self, tamper: Tamper | None) -> None:
        """Let every reply pass through a function that sends it, or not; None: through none."""
        self._deliver = self._send if tamper is None else partial(self._tampered, tamper)

    async def run(self) -> None:
        """Serve until cancelled; raises what ended a lane, such as FatalError."""
        async with TaskScope() as lanes:
            lanes.start(self._router.watch_clients())
            lanes.start(self._router.receive(partial(self._enqueue, lanes)))
            await lanes.failure

    def close(self) -> None:
        """Close the socket; waits a moment for replies to leave."""
        self._router.close()

    def _enqueue(self, lanes: TaskScope, client: bytes, request: Received) -> None:
        lane = self._lanes.get(client)
        if lane is None and len(self._lanes) < MAX_LANES:
            lane = self._lanes[client] = _Lane()
            lanes.start(self._work_off(client, lane))
        if lane is None:
            self._drop(1, f"{MAX_LANES} clients are waiting")
        elif lane.has_room(_bytes_of(request)):
            lane.put(request)
        else:
            self._drop(1, f"a client has {len(lane.waiting)} requests of {lane.nbytes} B waiting")

    def _drop(self, count: int, reason: str) -> None:
        for _ in range(count):
            self._meter.count(None, Fate.DROPPED)
        self._journal.line(f"{reason}; dropped: {count}")

    async def _work_off(self, client: bytes, lane: _Lane) -> None:
        """Answer one client's requests until none is left; others have their turn in between."""
        try:
            while lane.waiting:
                if not await self._router.until_read(client):
                    reason = f"a client has read none of its replies for {READ_WITHIN_S:g} s"
                    self._drop(len(lane.waiting), reason)
                    return
                await self._answer(client, lane.take())
                await asyncio.sleep(0)
        finally:
            del self._lanes[client]

    async def _answer(self, client: bytes, frames: Received) -> None:
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
            sent = await self._deliver(client, request, reply)
        except (RemoteProtocolError, RefusalError) as error:
            self._meter.count(op, Fate.REFUSED)
            who = f"client {client.hex()}: " if op is None else ""
            self._journal.line(f"refused: {who}{error}")
        except HarnessError:
            raise
        except Exception as error:  # noqa: BLE001 - one bug must not end what others rely on
            self._meter.count(op, Fate.UNEXPECTED)
            self._journal.line(f"unexpected: {_name_of(op)}: {type(error).__name__}: {error}")
        else:
            self._meter.count(op, Fate.ANSWERED if sent else Fate.UNANSWERED)

    async def _send(self, client: bytes, request: Incoming, reply: Frames) -> bool:
        """Send a reply and tell whether it is on its way."""
        try:
            self._router.send(client, reply)
        except LostReplyError as error:
            self._journal.line(f"a reply to {request.op.value} is lost: {error}")
            return False
        return True

    async def _tampered(
        self, tamper: Tamper, client: bytes, request: Incoming, reply: Frames
    ) -> bool:
        sent = False

        async def send(frames: Frames) -> None:
            nonlocal sent
            sent = await self._send(client, request, frames) or sent

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


def _bytes_of(request: Received) -> int:
    return sum(map(len, request))

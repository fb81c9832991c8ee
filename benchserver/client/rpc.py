"""One DEALER connection to an MP server: asyncio and ZMQ around `protocol.session`.

Owns the socket, the receive loop and the waiting futures.  Everything that is not the answer to
a waiting call (late, duplicate, unknown, malformed replies, lost connections) goes to the
observer as an event.  A call ends by its answer, its deadline, a lost connection or
cancellation, and leaves the table in one place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from benchserver.clock import NS_PER_S, Clock
from benchserver.tasks import cancel_and_wait
from protocol.dialects import Dialect
from protocol.messages import Event, MalformedReply, Reply
from protocol.ops import Op
from protocol.session import ClientSession

_RECONNECT_MS = 50
_RECONNECT_MAX_MS = 500
_MAX_MESSAGE_BYTES = 16 << 30
"""Bounds what a peer can make us allocate; an inline reply holds whole KV chunks."""


class CallFailedError(Exception):
    """A call without a usable answer: whether the server acted on it is unknown."""

    def __init__(self, op: Op, reason: str) -> None:
        super().__init__(f"{op.name}: {reason}")
        self.op = op
        self.reason = reason


class NoAnswerError(CallFailedError):
    """The deadline passed."""


class BadAnswerError(CallFailedError):
    """The answer broke the protocol."""


class ConnectionLostError(CallFailedError):
    """The connection ended while the call waited."""


Observer = Callable[[Event], None]


class RpcClient:
    """One DEALER socket; create it inside a running event loop and close it."""

    def __init__(
        self,
        context: zmq.asyncio.Context,
        url: str,
        dialect: Dialect,
        *,
        clock: Clock,
        timeout_ns: int,
        observer: Observer,
    ) -> None:
        self._url = url
        self._clock = clock
        self._timeout_ns = timeout_ns
        self._observer = observer
        self._session = ClientSession(dialect)
        self._waiting: dict[int, asyncio.Future[Reply | CallFailedError]] = {}
        self._ops: dict[int, Op] = {}
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        # Sending never blocks: the pending table bounds the queue.
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS)
        self._socket.setsockopt(zmq.MAXMSGSIZE, _MAX_MESSAGE_BYTES)
        # Only for an IPv6 address: names would then resolve to IPv6 first.
        self._socket.setsockopt(zmq.IPV6, "[" in url)
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self.lost_connections = 0
        self._socket.connect(url)
        self._tasks = [
            asyncio.ensure_future(self._receive_loop()),
            asyncio.ensure_future(self._monitor_loop()),
        ]

    async def call(self, op: Op, *args: Any, timeout_ns: int | None = None) -> Reply:
        """Send a request and return its reply.

        Raises NoAnswerError at the deadline, BadAnswerError, ConnectionLostError; and
        LocalProtocolError if the request cannot be sent at all.
        """
        budget_ns = self._timeout_ns if timeout_ns is None else timeout_ns
        sent_ns = self._clock.now_ns()
        request = self._session.request(op, args, now_ns=sent_ns, deadline_ns=sent_ns + budget_ns)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Reply | CallFailedError] = loop.create_future()
        self._waiting[request.uid] = future
        self._ops[request.uid] = op
        expiry = NoAnswerError(op, f"no answer within {budget_ns / NS_PER_S:g} s")
        timer = loop.call_later(budget_ns / NS_PER_S, self._settle, request.uid, expiry)
        try:
            await self._socket.send_multipart(request.frames, copy=True)
            outcome = await future
        finally:
            timer.cancel()
            self._waiting.pop(request.uid, None)
            self._ops.pop(request.uid, None)
            self._session.abandon(request.uid, now_ns=self._clock.now_ns())
        if isinstance(outcome, CallFailedError):
            raise outcome
        return outcome

    async def close(self) -> None:
        """End the loops and close the socket; waiting calls end as lost."""
        self._lose("the connection was closed")
        await cancel_and_wait(self._tasks)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)

    async def _receive_loop(self) -> None:
        while True:
            frames = await self._socket.recv_multipart()
            self._handle(self._session.receive(frames, now_ns=self._clock.now_ns()))

    def _handle(self, event: Event) -> None:
        if isinstance(event, Reply):
            self._settle(event.uid, event)
            return
        self._observer(event)
        if isinstance(event, MalformedReply) and event.uid in self._ops:
            self._settle(event.uid, BadAnswerError(self._ops[event.uid], event.reason))

    def _settle(self, uid: int, outcome: Reply | CallFailedError) -> None:
        future = self._waiting.get(uid)
        if future is not None and not future.done():
            future.set_result(outcome)

    async def _monitor_loop(self) -> None:
        while True:
            message = await self._monitor.recv_multipart()
            if parse_monitor_message(message)["event"] == zmq.EVENT_DISCONNECTED:
                self.lost_connections += 1
                self._lose(f"the connection to {self._url} was lost while waiting")

    def _lose(self, reason: str) -> None:
        for uid, op in list(self._ops.items()):
            self._settle(uid, ConnectionLostError(op, reason))

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
from zmq.utils.monitor import parse_monitor_message

from benchserver.clock import NS_PER_S, Clock
from benchserver.errors import FatalError
from protocol.dialects import Dialect
from protocol.messages import Event, MalformedReply, Reply
from protocol.ops import TRAITS, Op
from protocol.session import ClientSession

_RECONNECT_MS = 50
_RECONNECT_MAX_MS = 500
_PATIENCE_MS = 4
"""How long the event loop may stand still for a quick answer that nothing else waits beside.

Most come within 3 ms (LOOKUP on 0.5.6).  Less is worse: a timeout of 1 ms alone made each
round trip 10 us longer, as measured."""

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
Outcome = Reply | CallFailedError

_WAIT = 0
_DO_NOT_WAIT = int(zmq.NOBLOCK)


class RpcClient:
    """One DEALER socket; create it inside a running event loop and close it."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        url: str,
        dialect: Dialect,
        *,
        clock: Clock,
        timeout_ns: int,
        observer: Observer,
    ) -> None:
        self.dialect = dialect
        self._url = url
        self._clock = clock
        self._timeout_ns = timeout_ns
        self._observer = observer
        self._session = ClientSession(dialect)
        self._ops: dict[int, Op] = {}
        self._early: dict[int, Outcome] = {}
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        # Sending never blocks: the pending table bounds the queue.
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RCVTIMEO, _PATIENCE_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS)
        self._socket.setsockopt(zmq.MAXMSGSIZE, _MAX_MESSAGE_BYTES)
        # Only for an IPv6 address: names would then resolve to IPv6 first.
        self._socket.setsockopt(zmq.IPV6, "[" in url)
        self._monitor = self._socket.get_monitor_socket(
            zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED
        )
        self.lost_connections = 0
        self.greeted = False
        """Whether the peer has ever spoken ZMQ."""
        self._disconnected = False
        self._closed = False
        self._look_due = False
        try:
            self._socket.connect(url)
        except zmq.ZMQError as error:
            self._socket.close(linger=0)
            raise FatalError(f"cannot connect to {url}: {error.strerror}") from error
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.FD, self._drain)
        self._loop.add_reader(self._monitor.FD, self._drain_monitor)
        # ZMQ announces only what comes after a socket was found empty: look once to arm it.
        self._drain()
        self._drain_monitor()

    async def call(self, op: Op, *args: Any, timeout_ns: int | None = None) -> Reply:
        """Send a request and return its reply.

        Raises NoAnswerError at the deadline, BadAnswerError, ConnectionLostError; and
        LocalProtocolError if the request cannot be sent at all.
        """
        if self._disconnected:
            raise ConnectionLostError(op, f"not sent, the connection to {self._url} was lost")
        budget_ns = self._timeout_ns if timeout_ns is None else timeout_ns
        sent_ns = self._clock.now_ns()
        request = self._session.request(op, args, now_ns=sent_ns, deadline_ns=sent_ns + budget_ns)
        self._ops[request.uid] = op
        outcome: Outcome | None = None
        try:
            self._send(request.frames, quick=not TRAITS[op].moves_data)
            outcome = self._early.pop(request.uid, None)
            if outcome is None:
                outcome = await self._wait(request.uid, budget_ns)
        finally:
            del self._ops[request.uid]
            if self._session.pending_count:  # an answer has taken it off already
                # Without an outcome the caller was cancelled.
                now_ns = self._clock.now_ns()
                self._session.abandon(request.uid, now_ns=now_ns, withdrawn=outcome is None)
        if isinstance(outcome, Reply):
            return outcome
        raise outcome

    def _send(self, frames: tuple[bytes, ...], *, quick: bool) -> None:
        """Send, and look at once for what has come meanwhile.

        A quick operation that waits alone is given a moment in the kernel: its answer then does
        not pay for a turn of the event loop, which costs as much as the answer itself.
        """
        self._socket.send_multipart(frames, _DO_NOT_WAIT)
        # Sending may swallow the edge that announces a message, so it must be asked for.
        self._drain(patient=quick and len(self._ops) == 1)

    async def _wait(self, uid: int, budget_ns: int) -> Outcome:
        future: asyncio.Future[Outcome] = self._loop.create_future()
        self._waiting[uid] = future
        timer = self._loop.call_later(budget_ns / NS_PER_S, self._expire, uid, budget_ns)
        try:
            return await future
        finally:
            timer.cancel()
            del self._waiting[uid]

    def _expire(self, uid: int, budget_ns: int) -> None:
        reason = f"no answer within {budget_ns / NS_PER_S:g} s"
        self._settle(uid, NoAnswerError(self._ops[uid], reason))

    async def close(self) -> None:
        """End the loops and close the socket; waiting calls end as lost."""
        if self._closed:
            return
        self._drain()
        self._lose("the connection was closed")
        self._closed = True
        self._loop.remove_reader(self._socket.FD)
        self._loop.remove_reader(self._monitor.FD)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)

    def _drain(self, *, patient: bool = False) -> None:
        """Take every message that has come, or, `patient`, wait a moment for one.

        ZMQ's descriptor announces that something came, not how much: what a look leaves behind
        is not announced again, so a patient look is followed by another one, outside the call.
        """
        while not self._closed:
            try:
                frames = self._socket.recv_multipart(_WAIT if patient else _DO_NOT_WAIT)
            except zmq.Again:
                return
            self._handle(self._session.receive(frames, now_ns=self._clock.now_ns()))
            if patient:
                self._look_later()
                return

    def _look_later(self) -> None:
        if not self._look_due:
            self._look_due = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._look_due = False
        self._drain()

    def _handle(self, event: Event) -> None:
        if isinstance(event, Reply):
            # The session answers each pending uid once, and a call leaves both tables together.
            self._settle(event.uid, event)
            return
        self._observer(event)
        if isinstance(event, MalformedReply) and event.uid in self._ops:
            self._settle(event.uid, BadAnswerError(self._ops[event.uid], event.reason))

    def _settle(self, uid: int, outcome: Outcome) -> None:
        future = self._waiting.get(uid)
        if future is None:
            self._early[uid] = outcome
        elif not future.done():
            future.set_result(outcome)

    def _drain_monitor(self) -> None:
        while not self._closed:
            try:
                message = self._monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            event = parse_monitor_message(message)["event"]
            self.greeted = self.greeted or event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            self._disconnected = event == zmq.EVENT_DISCONNECTED
            if self._disconnected:
                self.lost_connections += 1
                self._lose(f"the connection to {self._url} was lost while waiting")

    def _lose(self, reason: str) -> None:
        for uid, op in list(self._ops.items()):
            self._settle(uid, ConnectionLostError(op, reason))

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
from benchserver.tasks import Patience
from protocol.codec import MAX_REPLY_FRAMES
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

_TURN_MESSAGES = 64
_TURN_S = 0.002
"""What one turn of the event loop may take from a socket.  A peer can send more, and faster than it
is read; deadlines and signals must not wait behind that."""

_TURN_FRAMES = 2000
"""Frames of one message beyond those that are kept."""

_MAX_MESSAGE_BYTES = 16 << 30
"""Bounds what a peer can make us allocate; an inline reply holds whole KV chunks."""


class CallFailedError(Exception):
    """A call without a usable answer: whether the server acted on it is unknown."""

    def __init__(self, op: Op, reason: str) -> None:
        super().__init__(f"{op.name}: {reason}")
        self.op = op
        self.reason = reason


class NoAnswerError(CallFailedError):
    """The deadline passed; `ours`: in part because this process stood still meanwhile."""

    def __init__(self, op: Op, reason: str, *, ours: bool = False) -> None:
        super().__init__(op, reason)
        self.ours = ours


class BadAnswerError(CallFailedError):
    """The answer broke the protocol."""


class ConnectionLostError(CallFailedError):
    """The connection ended while the call waited."""


Observer = Callable[[Event], None]
Outcome = Reply | CallFailedError

_FAILED_HANDSHAKES = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
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
        address: str = "",
    ) -> None:
        """`url` is what errors show; `address` is the same with a number for the host's name."""
        self.dialect = dialect
        self._url = url
        self._clock = clock
        self._timeout_ns = timeout_ns
        self._observer = observer
        self._session = ClientSession(dialect)
        self._ops: dict[int, Op] = {}
        self._early: dict[int, Outcome] = {}
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._socket = _opened(lambda: context.socket(zmq.DEALER), url)
        self._socket.setsockopt(zmq.LINGER, 0)
        # Sending never blocks: the pending table bounds the queue.
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RCVTIMEO, _PATIENCE_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS)
        self._socket.setsockopt(zmq.MAXMSGSIZE, _MAX_MESSAGE_BYTES)
        # A peer that is frozen is not another one after half a minute.
        self._socket.setsockopt(zmq.HANDSHAKE_IVL, 0)
        # Only for an IPv6 address: names would then resolve to IPv6 first.
        self._socket.setsockopt(zmq.IPV6, "[" in (address or url))
        events = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | _FAILED_HANDSHAKES
        try:
            self._monitor = _opened(lambda: self._socket.get_monitor_socket(events), url)
        except FatalError:
            self._socket.close(linger=0)
            raise
        self.lost_connections = 0
        self.greeted = False
        """Whether the peer has ever spoken ZMQ."""
        self.spoke_otherwise = False
        """Whether it has hung up, or said something else, before it ever did."""
        self._disconnected = False
        self._closed = False
        self._look_due = False
        self._frames: list[bytes] = []
        """Those of a message that has not been read to its end."""
        try:
            self._socket.connect(address or url)
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
                gone = outcome is None or (isinstance(outcome, NoAnswerError) and outcome.ours)
                self._session.abandon(request.uid, now_ns=self._clock.now_ns(), withdrawn=gone)
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
        patience = Patience(budget_ns / NS_PER_S, self._loop.time())
        self._set_timer(uid, budget_ns, patience)
        try:
            return await future
        finally:
            self._timers.pop(uid).cancel()
            del self._waiting[uid]

    def _set_timer(self, uid: int, budget_ns: int, patience: Patience) -> None:
        self._timers[uid] = self._loop.call_at(
            patience.look_at_s, self._expire, uid, budget_ns, patience
        )

    def _expire(self, uid: int, budget_ns: int, patience: Patience) -> None:
        if not patience.over(self._loop.time()):
            self._set_timer(uid, budget_ns, patience)
            return
        reason = f"no answer within {budget_ns / NS_PER_S:g} s{patience.ours}"
        self._settle(uid, NoAnswerError(self._ops[uid], reason, ours=bool(patience.ours)))

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
        """Take the messages that have come, or, `patient`, wait a moment for one.

        ZMQ's descriptor announces that something came, not how much: what a look leaves behind
        is not announced again, so it is followed by another one, in a later turn of the loop.
        """
        until_s = self._loop.time() + _TURN_S
        for _ in range(1 if patient else _TURN_MESSAGES):
            if self._closed:
                return
            try:
                frames = self._receive(_WAIT if patient else _DO_NOT_WAIT)
            except zmq.Again:
                return
            if frames is not None:
                self.greeted = True  # the monitor may be behind
                self._handle(self._session.receive(frames, now_ns=self._clock.now_ns()))
            if self._loop.time() > until_s:
                break
        self._look_later()

    def _receive(self, flags: int) -> list[bytes] | None:
        """Return the next message, or None if it is so long that another turn must read on.

        Of a message that no reply can be, the first frames are kept.  Raises zmq.Again.
        """
        frames = self._frames
        for _ in range(_TURN_FRAMES):
            frame = self._socket.recv(flags)
            if len(frames) <= MAX_REPLY_FRAMES:
                frames.append(frame)
            if not self._socket.getsockopt(zmq.RCVMORE):
                self._frames = []
                return frames
        return None

    def _look_later(self) -> None:
        if not self._look_due:
            self._look_due = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._look_due = False
        if not self._closed:
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
        for _ in range(_TURN_MESSAGES):
            if self._closed:
                return
            try:
                message = self._monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            event = parse_monitor_message(message)["event"]
            self.greeted = self.greeted or event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            self.spoke_otherwise = self.spoke_otherwise or not self.greeted
            if event & _FAILED_HANDSHAKES:
                continue
            self._disconnected = event == zmq.EVENT_DISCONNECTED
            if self._disconnected:
                self.lost_connections += 1
                self._lose(f"the connection to {self._url} was lost while waiting")
        self._loop.call_soon(self._drain_monitor)

    def _lose(self, reason: str) -> None:
        for uid, op in list(self._ops.items()):
            self._settle(uid, ConnectionLostError(op, reason))


def _opened(opening: Callable[[], zmq.Socket[bytes]], url: str) -> zmq.Socket[bytes]:
    """Return a new socket; FatalError if the system has no descriptors for it."""
    try:
        return opening()
    except zmq.ZMQError as error:
        raise FatalError(
            f"cannot open a socket for {url}: {error.strerror}; see `ulimit -n`"
        ) from error

"""Connections over ZMQ: a DEALER socket each, asyncio and ZMQ around `protocol.session`.

Owns the sockets, the receive loops and the waiting futures.  A call ends by its answer, its
deadline, a lost connection or cancellation, and leaves the table in one place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from benchserver.client.connection import (
    BadAnswerError,
    ConnectionLostError,
    Ending,
    NoAnswerError,
    Observer,
    Standing,
)
from benchserver.clock import NS_PER_S, Clock
from benchserver.errors import FatalError
from benchserver.tasks import Patience
from protocol.codec import MAX_REPLY_FRAMES
from protocol.dialect import Dialect
from protocol.messages import Event, MalformedReply, Reply
from protocol.ops import MOVING, Op
from protocol.session import ClientSession

_RECONNECT_MS = 50
_RECONNECT_MAX_MS = 500
_PATIENCE_MS = 4
"""How long the event loop may stand still for a quick answer that no other call waits beside.

Most come within 3 ms (LOOKUP on 0.5.6).  Less is worse: a timeout of 1 ms alone made each
round trip 10 us longer, as measured."""

_MAX_SOCKETS = 1 << 14
"""libzmq stops at 1023. A connection has three (its own, and both ends of its monitor), and a run
4096 workers at most; a slot that is not used takes 8 bytes."""

_TURN_MESSAGES = 64
_TURN_S = 0.002
"""What one turn of the event loop may take from a socket, and after which calls that are answered
at once give it up.  A peer can send more, and faster than it is read; deadlines, signals and other
tasks must not wait behind that."""

_TURN_FRAMES = 2000
"""Frames of one message beyond those that are kept."""

_MAX_MESSAGE_BYTES = 16 << 30
"""Bounds what a peer can make us allocate; an inline reply holds whole KV chunks."""

_FAILED_HANDSHAKES = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
# Plain numbers: pyzmq's flags are enums, and each `|` of them takes longer than sending a frame.
_WAIT = 0
_DO_NOT_WAIT = int(zmq.NOBLOCK)
_MORE = _DO_NOT_WAIT | int(zmq.SNDMORE)
_POLLIN = int(zmq.POLLIN)


class ZmqConnector:
    """Opens connections to one server, and owns what they share."""

    def __init__(self, url: str, *, clock: Clock, timeout_ns: int, address: str = "") -> None:
        """`url` is what errors show; `address` is the same with a number for the host's name."""
        self._shared = _Shared(
            context=_context(),
            url=url,
            address=address or url,
            clock=clock,
            timeout_ns=timeout_ns,
        )

    def open(self, dialect: Dialect, observer: Observer) -> ZmqConnection:
        """Return a new connection, inside a running event loop; FatalError if it cannot be."""
        connection = ZmqConnection(self._shared, dialect, observer)
        self._shared.open.add(connection)
        return connection

    async def close(self) -> None:
        """Close every connection that is still open, and the context."""
        for connection in list(self._shared.open):
            await connection.close()
        self._shared.context.destroy(linger=0)


@dataclass(slots=True, kw_only=True)
class _Shared:
    """What the connections of one connector have in common."""

    context: zmq.Context[zmq.Socket[bytes]]
    url: str
    address: str
    clock: Clock
    timeout_ns: int
    open: set[ZmqConnection] = field(default_factory=set)
    under_way: int = 0
    """Calls that have begun and not ended, on all connections."""
    turn_s: float | None = None
    """When this turn of the event loop first had a call that was answered at once."""

    def turn_is_over(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Tell whether calls have kept the event loop to themselves for long enough."""
        now_s = loop.time()
        if self.turn_s is None:
            self.turn_s = now_s
            loop.call_soon(self._turn_ends)
            return False
        return now_s > self.turn_s + _TURN_S

    def _turn_ends(self) -> None:
        self.turn_s = None


_Waiting = tuple[asyncio.Future[Ending], Patience, int]
"""A call that waits: for what, how long yet, and how long in all, in nanoseconds."""


class ZmqConnection:
    """One DEALER socket; a ZmqConnector opens it."""

    def __init__(self, shared: _Shared, dialect: Dialect, observer: Observer) -> None:
        self.dialect = dialect
        self._shared = shared
        self._url = shared.url
        self._clock = shared.clock
        self._observer = observer
        self._session = ClientSession(dialect)
        self._ops: dict[int, Op] = {}
        self._early: dict[int, Ending] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._alarm: asyncio.TimerHandle | None = None
        """One for all that wait: most calls end long before it."""
        self._lost = self._answered = 0
        self._greeted = False
        self._spoke_otherwise = False
        self._disconnected = False
        self._closed = False
        self._look_due = False
        self._frames: list[bytes] = []
        """Those of a message that has not been read to its end."""
        self._socket, self._monitor = _connected(shared)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.FD, self._drain)
        self._loop.add_reader(self._monitor.FD, self._drain_monitor)
        # ZMQ announces only what comes after a socket was found empty: look once to arm it.
        self._drain()
        self._drain_monitor()

    @property
    def standing(self) -> Standing:
        """Return what has become of the connection so far."""
        return Standing(
            lost=self._lost,
            greeted=self._greeted,
            spoke_otherwise=self._spoke_otherwise,
            answered=self._answered,
            owed=tuple(self._ops.values()),
        )

    async def call(self, op: Op, *args: Any, timeout_ns: int | None = None) -> Reply:
        """Send a request and return its reply; `timeout_ns` None: that of the connector.

        Raises NoAnswerError at the deadline, BadAnswerError, ConnectionLostError; and
        LocalProtocolError if the request cannot be sent at all.
        """
        if self._disconnected:
            raise ConnectionLostError(op, f"not sent, the connection to {self._url} was lost")
        budget_ns = self._shared.timeout_ns if timeout_ns is None else timeout_ns
        sent_ns = self._clock.now_ns()
        request = self._session.request(op, args, now_ns=sent_ns)
        self._ops[request.uid] = op
        self._shared.under_way += 1
        ending: Ending | None = None
        try:
            self._send(request.frames, quick=op not in MOVING)
            ending = self._early.pop(request.uid, None)
            if ending is None:
                ending = await self._wait(request.uid, budget_ns)
            elif self._shared.turn_is_over(self._loop):
                await asyncio.sleep(0)  # others have waited for long enough
        finally:
            self._shared.under_way -= 1
            del self._ops[request.uid]
            if not isinstance(ending, Reply):  # which has taken it off already
                # Without an ending the caller was cancelled.
                gone = ending is None or (isinstance(ending, NoAnswerError) and ending.ours)
                self._session.abandon(request.uid, now_ns=self._clock.now_ns(), withdrawn=gone)
        if isinstance(ending, Reply):
            self._answered += op is not Op.PING
            return ending
        raise ending

    def _send(self, frames: tuple[bytes, ...], *, quick: bool) -> None:
        """Send, and look at once for what has come meanwhile.

        A quick operation is given a moment in the kernel if no call of the connector waits beside
        it: its answer then does not pay for a turn of the event loop, which costs as much as the
        answer itself.
        """
        *more, last = frames
        for frame in more:
            self._socket.send(frame, _MORE)
        self._socket.send(last, _DO_NOT_WAIT)
        # Sending may swallow the edge that announces a message, so it must be asked for.
        if quick and self._shared.under_way == 1:
            self._drain(patient=True)
        elif self._has_come():
            self._look_later()

    async def _wait(self, uid: int, budget_ns: int) -> Ending:
        future: asyncio.Future[Ending] = self._loop.create_future()
        patience = Patience(budget_ns / NS_PER_S, self._loop.time())
        self._waiting[uid] = (future, patience, budget_ns)
        if self._alarm is None or patience.look_at_s < self._alarm.when():
            self._set_alarm(patience.look_at_s)
        try:
            return await future
        finally:
            del self._waiting[uid]

    def _set_alarm(self, at_s: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(at_s, self._look_at_deadlines)

    def _look_at_deadlines(self) -> None:
        """End the calls whose time is over, and come again for the others."""
        self._alarm, now_s = None, self._loop.time()
        open_until_s = []
        for uid, (future, patience, budget_ns) in self._waiting.items():
            if future.done():
                continue
            if patience.look_at_s <= now_s and patience.over(now_s):
                reason = f"no answer within {budget_ns / NS_PER_S:g} s{patience.ours}"
                self._settle(uid, NoAnswerError(self._ops[uid], reason, ours=bool(patience.ours)))
            else:
                open_until_s.append(patience.look_at_s)
        if open_until_s:
            self._set_alarm(min(open_until_s))

    async def close(self) -> None:
        """End the loops and close the socket; waiting calls end as lost."""
        if self._closed:
            return
        self._shared.open.discard(self)
        self._drain()
        self._lose("the connection was closed")
        self._closed = self._disconnected = True
        if self._alarm is not None:
            self._alarm.cancel()
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
        for taken in range(1 if patient else _TURN_MESSAGES):
            # After the first there is mostly none, and to ask costs less than to be refused.
            if self._closed or (taken == 1 and not self._has_come()):
                return
            try:
                frames = self._receive(_WAIT if patient else _DO_NOT_WAIT)
            except zmq.Again:
                return
            if frames is not None:
                self._greeted = True  # the monitor may be behind
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
            frame = self._socket.recv(flags, copy=False)
            if len(frames) <= MAX_REPLY_FRAMES:
                frames.append(frame.bytes)
            if not frame.more:
                self._frames = []
                return frames
        return None

    def _has_come(self) -> bool:
        """Tell whether there is a message, so that one that comes now announces itself."""
        return bool(int(self._socket.getsockopt(zmq.EVENTS)) & _POLLIN)

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

    def _settle(self, uid: int, ending: Ending) -> None:
        if uid not in self._waiting:
            self._early[uid] = ending
            return
        future, _, _ = self._waiting[uid]
        if not future.done():
            future.set_result(ending)

    def _drain_monitor(self) -> None:
        for _ in range(_TURN_MESSAGES):
            if self._closed:
                return
            try:
                message = self._monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            event = parse_monitor_message(message)["event"]
            self._greeted = self._greeted or event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            self._spoke_otherwise = self._spoke_otherwise or not self._greeted
            if event & _FAILED_HANDSHAKES:
                continue
            self._disconnected = event == zmq.EVENT_DISCONNECTED
            if self._disconnected:
                self._lost += 1
                self._lose(f"the connection to {self._url} was lost while waiting")
        self._loop.call_soon(self._drain_monitor)

    def _lose(self, reason: str) -> None:
        for uid, op in list(self._ops.items()):
            self._settle(uid, ConnectionLostError(op, reason))


def _context() -> zmq.Context[zmq.Socket[bytes]]:
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, _MAX_SOCKETS)
    return context


def _connected(shared: _Shared) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
    """Return a socket that connects, and its monitor; FatalError if there cannot be one."""
    url, address = shared.url, shared.address
    opened = _opened(lambda: shared.context.socket(zmq.DEALER), url)
    opened.setsockopt(zmq.LINGER, 0)
    # Sending never blocks: the pending table bounds the queue.
    opened.setsockopt(zmq.SNDHWM, 0)
    opened.setsockopt(zmq.RCVTIMEO, _PATIENCE_MS)
    opened.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
    opened.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS)
    opened.setsockopt(zmq.MAXMSGSIZE, _MAX_MESSAGE_BYTES)
    # A peer that is frozen is not another one after half a minute.
    opened.setsockopt(zmq.HANDSHAKE_IVL, 0)
    # Only for an IPv6 address: names would then resolve to IPv6 first.
    opened.setsockopt(zmq.IPV6, "[" in address)
    events = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | _FAILED_HANDSHAKES
    try:
        monitor = _opened(lambda: opened.get_monitor_socket(events), url)
        opened.connect(address)
    except FatalError:
        opened.close(linger=0)
        raise
    except zmq.ZMQError as error:
        opened.close(linger=0)
        raise FatalError(f"cannot connect to {url}: {error.strerror}") from error
    return opened, monitor


def _opened(opening: Callable[[], zmq.Socket[bytes]], url: str) -> zmq.Socket[bytes]:
    """Return a new socket; FatalError if the system has no descriptors for it."""
    try:
        return opening()
    except zmq.ZMQError as error:
        raise FatalError(
            f"cannot open a socket for {url}: {error.strerror}; see `ulimit -n`"
        ) from error

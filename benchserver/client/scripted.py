"""A connection that answers by script, in the time of its clock: for tests, and for authors.

Requests and replies take the way of real ones, through `protocol.session`, as frames: what cannot
be sent is refused, and what cannot be an answer ends a call as it does over the network.  Only
the peer is a script.  It says for each operation what is answered:

    Op.NOOP: "OK"                              a result, at once
    Op.STORE: Answer(result=..., after_ns=5)   a result, later; and as often as `times` says
    Op.PING: NEVER                             nothing: the call ends at its deadline
    Op.LOOKUP: BAD                             an answer that breaks the protocol
    Op.NOOP: LOST                              the connection ends
    Op.NOOP: SomeError(...)                    the call raises it
    Op.QUERY_PREFETCH_STATUS: in_turn(VOID, 2) one after the other, the last one for ever
    Op.RETRIEVE: function                      what it returns for the arguments of the call

An operation without a line is answered VOID if its replies have no result, else it is an error of
the script.  What the script does not say, a test does: `say`, `lose`, `restore`.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchserver.client.connection import (
    BadAnswerError,
    ConnectionLostError,
    Ending,
    NoAnswerError,
    Observer,
    Standing,
)
from benchserver.clock import NS_PER_S, Clock
from benchserver.tasks import cancel_and_wait
from protocol import codec
from protocol.dialect import Dialect
from protocol.messages import VOID, Incoming, MalformedReply, Reply
from protocol.ops import Op
from protocol.session import ClientSession

_NOT_MSGPACK = b"\xc1"
_URL = "the script"


class Said(enum.Enum):
    """What a script may say that is not an answer."""

    NEVER = "never"
    BAD = "bad"
    LOST = "lost"


NEVER, BAD, LOST = Said.NEVER, Said.BAD, Said.LOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is answered (a result, BAD or LOST), when, and how often."""

    result: Any = VOID
    after_ns: int = 0
    times: int = 1


Script = Mapping[Op, Any]


def in_turn(*answers: Any) -> Callable[..., Any]:
    """Return a line of a script that gives one answer after the other, the last one for ever."""
    left = list(answers)
    return lambda *_args: left.pop(0) if len(left) > 1 else left[0]


class ScriptedConnector:
    """Opens scripted connections, which share one script, and keeps them for a test to look at."""

    def __init__(self, script: Script, *, clock: Clock, timeout_ns: int = NS_PER_S) -> None:
        self._script = script
        self._clock = clock
        self._timeout_ns = timeout_ns
        self.connections: list[ScriptedConnection] = []

    def open(self, dialect: Dialect, observer: Observer) -> ScriptedConnection:
        """Return a new connection."""
        connection = ScriptedConnection(
            self._script,
            dialect,
            clock=self._clock,
            timeout_ns=self._timeout_ns,
            observer=observer,
        )
        self.connections.append(connection)
        return connection

    async def close(self) -> None:
        """Close every connection."""
        for connection in self.connections:
            await connection.close()


class ScriptedConnection:
    """One connection to a script; close it, for answers may be on their way still."""

    def __init__(
        self,
        script: Script,
        dialect: Dialect,
        *,
        clock: Clock,
        timeout_ns: int = NS_PER_S,
        observer: Observer = lambda _event: None,
        standing: Standing = Standing(greeted=True),  # noqa: B008 - a frozen value
    ) -> None:
        self.dialect = dialect
        self.standing = standing
        self.calls: list[tuple[Any, ...]] = []
        """Operation and arguments of every call, whatever became of it."""
        self.timeouts_ns: list[int] = []
        """How long each of them would wait."""
        self._script = script
        self.clock = clock
        self._timeout_ns = timeout_ns
        self._observer = observer
        self._session = ClientSession(dialect)
        self._waiting: dict[int, tuple[Op, asyncio.Future[Ending]]] = {}
        self._sent: list[Incoming] = []
        self._answering: set[asyncio.Task[None]] = set()
        self._disconnected = False
        self._closed = False

    @property
    def ops(self) -> list[Op]:
        """Return the operation of every call."""
        return [call[0] for call in self.calls]

    async def call(self, op: Op, *args: Any, timeout_ns: int | None = None) -> Reply:
        """Send a request and return its reply; as every connection does."""
        budget_ns = self._timeout_ns if timeout_ns is None else timeout_ns
        self.calls.append((op, *args))
        self.timeouts_ns.append(budget_ns)
        if self._disconnected:
            raise ConnectionLostError(op, f"not sent, the connection to {_URL} was lost")
        request = self._session.request(op, args, now_ns=self.clock.now_ns())
        self._sent.append(codec.decode_request(self.dialect, request.frames))
        waiting: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._waiting[request.uid] = op, waiting
        ending: Ending | None = None
        self._owe()
        try:
            self._begin(request.uid, self._line(op, args))
            ending = await self._within(waiting, op, budget_ns)
        finally:
            del self._waiting[request.uid]
            self._owe()
            # Without an ending the caller was cancelled.
            withdrawn = ending is None
            self._session.abandon(request.uid, now_ns=self.clock.now_ns(), withdrawn=withdrawn)
        if isinstance(ending, Reply):
            answered = self.standing.answered + (op is not Op.PING)
            self.standing = replace(self.standing, answered=answered)
            return ending
        raise ending

    def _owe(self) -> None:
        owed = tuple(op for op, _ in self._waiting.values())
        self.standing = replace(self.standing, owed=owed)

    async def close(self) -> None:
        """End what is still to be answered; waiting calls fail as lost."""
        self._disconnected = True
        self._lose_waiting("the connection was closed")
        await cancel_and_wait(self._answering)

    def say(self, uid: int, result: Any = VOID) -> None:
        """Answer a request by its number, which counts from 0, whether or not anybody waits.

        BAD breaks the protocol, LOST ends the connection.  `uid` may be one that was never sent.
        """
        if result is LOST:
            self.lose()
        else:
            self._receive(self._reply(uid, result))

    def lose(self) -> None:
        """Lose the connection: waiting calls fail, and so do those to come."""
        self._disconnected = True
        self.standing = replace(self.standing, lost=self.standing.lost + 1)
        self._lose_waiting(f"the connection to {_URL} was lost while waiting")

    def restore(self) -> None:
        """Let the server be back."""
        self._disconnected = False

    def _line(self, op: Op, args: tuple[Any, ...]) -> Any:
        """Return what the script says to a call."""
        if op in self._script:
            line = self._script[op]
            return line(*args) if callable(line) else line
        row = codec.row_of(self.dialect, op)
        if row.result is None or row.pending:
            return VOID
        raise LookupError(f"the script says nothing of {op.name}, whose replies have a result")

    def _begin(self, uid: int, line: Any) -> None:
        if isinstance(line, BaseException):
            raise line
        if line is not NEVER:
            answer = line if isinstance(line, Answer) else Answer(result=line)
            if answer.result is not LOST:
                self._reply(uid, answer.result)  # an error of the script is raised in the call
            task = asyncio.create_task(self._answer(uid, answer))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, uid: int, answer: Answer) -> None:
        await self.clock.sleep_ns(answer.after_ns)
        for _ in range(answer.times):
            self.say(uid, answer.result)

    def _reply(self, uid: int, result: Any) -> tuple[bytes, ...]:
        """Return the frames of a reply."""
        if uid < len(self._sent):
            asked = self._sent[uid]
        else:
            frames = codec.encode_request(self.dialect, uid, Op.NOOP, ())
            asked = codec.decode_request(self.dialect, frames)
        if result is BAD:
            return asked.uid, asked.op_frame, _NOT_MSGPACK
        return codec.encode_reply(self.dialect, asked, result)

    async def _within(self, waiting: asyncio.Future[Ending], op: Op, budget_ns: int) -> Ending:
        deadline = asyncio.create_task(self.clock.sleep_ns(budget_ns))
        first: set[asyncio.Future[Any]] = {waiting, deadline}
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
            return NoAnswerError(op, f"no answer within {budget_ns / NS_PER_S:g} s")
        finally:
            await cancel_and_wait([deadline])

    def _receive(self, frames: tuple[bytes, ...]) -> None:
        event = self._session.receive(frames, now_ns=self.clock.now_ns())
        if isinstance(event, Reply):
            self._settle(event.uid, event)
            return
        self._observer(event)
        if isinstance(event, MalformedReply) and event.uid in self._waiting:
            op, _ = self._waiting[event.uid]
            self._settle(event.uid, BadAnswerError(op, event.reason))

    def _lose_waiting(self, reason: str) -> None:
        for uid, (op, _) in self._waiting.items():
            self._settle(uid, ConnectionLostError(op, reason))

    def _settle(self, uid: int, ending: Ending) -> None:
        _, waiting = self._waiting[uid]
        if not waiting.done():
            waiting.set_result(ending)

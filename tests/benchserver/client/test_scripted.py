"""Scripted connections: every law of a connection, and that the script is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from benchserver.client.connection import (
    BadAnswerError,
    Connection,
    ConnectionLostError,
    NoAnswerError,
    Standing,
)
from benchserver.client.scripted import (
    BAD,
    LOST,
    NEVER,
    Answer,
    Script,
    ScriptedConnection,
    ScriptedConnector,
    in_turn,
)
from benchserver.clock import NS_PER_S, VirtualClock, idle
from protocol.dialects import V047, V056
from protocol.errors import LocalProtocolError
from protocol.messages import VOID, DuplicateReply, Event, LateReply, UnknownReply
from protocol.ops import Op
from tests.benchserver.client.connectionsuite import LAWS, Asked, Law, Link, keep, name_of

NEVER_SENT = 1 << 20


class ByHand:
    """A peer over a connection whose script is silent: it answers when it is told."""

    def __init__(self) -> None:
        self._asked: asyncio.Queue[Asked] = asyncio.Queue()
        self._count = 0
        self.connection: ScriptedConnection | None = None

    @property
    def script(self) -> Script:
        def line(op: Op) -> Any:
            return lambda *args: self._hear(op, args)

        return {op: line(op) for op in V056.ops}

    def _hear(self, op: Op, args: tuple[Any, ...]) -> Any:
        self._asked.put_nowait(Asked(self._count, op, args))
        self._count += 1
        return NEVER

    @property
    def _open(self) -> ScriptedConnection:
        assert self.connection is not None
        return self.connection

    async def asked(self) -> Asked:
        return await self._asked.get()

    async def answer(self, asked: Asked, result: Any, *, bad: bool = False) -> None:
        self._open.say(asked.number, BAD if bad else result)

    async def answer_nothing(self) -> None:
        self._open.say(NEVER_SENT)

    def go(self) -> None:
        self._open.lose()

    def come_back(self) -> None:
        self._open.restore()


@asynccontextmanager
async def linked() -> AsyncIterator[Link]:
    peer, events = ByHand(), asyncio.Queue[Event]()
    connection = ScriptedConnection(
        peer.script, V056, clock=VirtualClock(), observer=events.put_nowait
    )
    peer.connection = connection
    try:
        yield Link(
            connection,
            peer,
            "the script",
            events,
            lambda: max(len(connection._waiting), connection._session.pending_count),
        )
    finally:
        await connection.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("law", LAWS, ids=name_of)
async def test_it_is_a_connection(law: Law) -> None:
    async with linked() as link:
        await keep(law, link)


class Scene:
    """A scripted connection and what its observer heard."""

    def __init__(self, script: Script) -> None:
        self.clock = VirtualClock(1000)
        self.events: list[Event] = []
        self.connection = ScriptedConnection(
            script, V056, clock=self.clock, observer=self.events.append
        )

    async def call(self, op: Op, *args: Any, timeout_ns: int | None = None) -> Any:
        return (await self.connection.call(op, *args, timeout_ns=timeout_ns)).result


@asynccontextmanager
async def scene(script: Script) -> AsyncIterator[Scene]:
    made = Scene(script)
    try:
        yield made
    finally:
        await made.connection.close()


@pytest.mark.asyncio
async def test_a_result_comes_at_once_or_after_a_while() -> None:
    later = Answer(result=256, after_ns=300)
    async with scene({Op.NOOP: "OK", Op.GET_CHUNK_SIZE: later}) as played:
        assert await played.call(Op.NOOP) == "OK"
        assert played.clock.now_ns() == 1000
        reply = await played.connection.call(Op.GET_CHUNK_SIZE)
        assert (reply.result, reply.latency_ns) == (256, 300)
        assert played.clock.now_ns() == 1300


@pytest.mark.asyncio
async def test_calls_wait_side_by_side_and_end_in_the_order_of_their_answers() -> None:
    delays = in_turn(*(Answer(result=n, after_ns=100 - n) for n in (1, 2, 3)))
    async with scene({Op.GET_CHUNK_SIZE: delays}) as played:
        ended: list[int] = []

        async def one() -> None:
            ended.append(await played.call(Op.GET_CHUNK_SIZE))

        await asyncio.gather(one(), one(), one())
        assert ended == [3, 2, 1]
        assert played.clock.now_ns() == 1099


@pytest.mark.asyncio
async def test_never_ends_at_the_deadline_in_no_time() -> None:
    async with scene({Op.NOOP: NEVER}) as played:
        with pytest.raises(NoAnswerError, match=r"^NOOP: no answer within 1 s$"):
            await played.call(Op.NOOP)
        assert played.clock.now_ns() == 1000 + NS_PER_S
        with pytest.raises(NoAnswerError, match=r"^NOOP: no answer within 3600 s$"):
            await played.call(Op.NOOP, timeout_ns=3600 * NS_PER_S)
        assert played.connection.timeouts_ns == [NS_PER_S, 3600 * NS_PER_S]


@pytest.mark.asyncio
async def test_an_answer_after_the_deadline_is_late_and_told() -> None:
    async with scene({Op.NOOP: Answer(result="OK", after_ns=NS_PER_S + 7)}) as played:
        with pytest.raises(NoAnswerError):
            await played.call(Op.NOOP)
        await played.clock.sleep_ns(NS_PER_S)
        (late,) = played.events
        assert late == LateReply(uid=0, op=Op.NOOP, late_ns=7)


@pytest.mark.asyncio
async def test_an_answer_that_is_given_twice_is_told() -> None:
    async with scene({Op.NOOP: Answer(result="OK", times=2)}) as played:
        assert await played.call(Op.NOOP) == "OK"
        assert played.events == [DuplicateReply(uid=0, op=Op.NOOP)]


@pytest.mark.asyncio
@pytest.mark.parametrize("line", [BAD, Answer(result=BAD, after_ns=5)])
async def test_a_bad_answer(line: Any) -> None:
    async with scene({Op.NOOP: line}) as played:
        with pytest.raises(BadAnswerError, match=r"^NOOP: noop result: 1 bytes starting"):
            await played.call(Op.NOOP)
        assert len(played.events) == 1


@pytest.mark.asyncio
async def test_a_connection_is_lost_by_script_and_restored_by_hand() -> None:
    async with scene({Op.NOOP: in_turn(Answer(result=LOST, after_ns=9), "OK")}) as played:
        with pytest.raises(ConnectionLostError, match=r"was lost while waiting$"):
            await played.call(Op.NOOP)
        assert played.clock.now_ns() == 1009
        assert played.connection.standing == Standing(lost=1, greeted=True)
        with pytest.raises(ConnectionLostError, match=r"^NOOP: not sent"):
            await played.call(Op.NOOP)
        played.connection.restore()
        assert await played.call(Op.NOOP) == "OK"


@pytest.mark.asyncio
async def test_an_error_is_raised_as_it_is() -> None:
    script = {Op.NOOP: in_turn(NoAnswerError(Op.NOOP, "slow", ours=True), ValueError("ours"))}
    async with scene(script) as played:
        with pytest.raises(NoAnswerError) as caught:
            await played.call(Op.NOOP)
        assert caught.value.ours
        with pytest.raises(ValueError, match="ours"):
            await played.call(Op.NOOP)
        assert played.connection.ops == [Op.NOOP, Op.NOOP]


@pytest.mark.asyncio
async def test_one_after_the_other_and_the_last_for_ever() -> None:
    async with scene({Op.QUERY_PREFETCH_STATUS: in_turn(VOID, VOID, 2)}) as played:
        results = [await played.call(Op.QUERY_PREFETCH_STATUS, "r") for _ in range(5)]
        assert results == [VOID, VOID, 2, 2, 2]


@pytest.mark.asyncio
async def test_a_function_sees_the_arguments() -> None:
    async with scene({Op.PING: lambda instance: instance == 7}) as played:
        assert [await played.call(Op.PING, number) for number in (6, 7)] == [False, True]
        assert played.connection.calls == [(Op.PING, 6), (Op.PING, 7)]


@pytest.mark.asyncio
async def test_what_the_script_leaves_out_is_void_if_it_can_be() -> None:
    async with scene({}) as played:
        assert await played.call(Op.END_SESSION, "r") is VOID
        with pytest.raises(LookupError, match=r"^the script says nothing of NOOP"):
            await played.call(Op.NOOP)


@pytest.mark.asyncio
async def test_a_result_that_no_server_could_send_is_an_error_in_the_call() -> None:
    async with scene({Op.NOOP: "OK", Op.PING: object()}) as played:
        with pytest.raises(LocalProtocolError, match="cannot be packed"):
            await played.call(Op.PING, 1)
        assert await played.call(Op.NOOP) == "OK"


@pytest.mark.asyncio
async def test_the_dialect_is_kept() -> None:
    connection = ScriptedConnection({}, V047, clock=VirtualClock())
    assert connection.dialect is V047
    await connection.close()


@pytest.mark.asyncio
async def test_close_ends_answers_that_are_on_their_way() -> None:
    async with scene({Op.NOOP: Answer(result="OK", after_ns=NS_PER_S)}) as played:
        with pytest.raises(NoAnswerError):
            await played.call(Op.NOOP, timeout_ns=5)
        await played.connection.close()
        await played.clock.sleep_ns(2 * NS_PER_S)
        await idle()
        assert played.events == []


@pytest.mark.asyncio
async def test_said_by_hand() -> None:
    async with scene({Op.NOOP: NEVER}) as played:
        call = asyncio.create_task(played.connection.call(Op.NOOP))
        await asyncio.sleep(0)
        played.connection.say(NEVER_SENT)
        played.connection.say(0, "OK")
        assert (await call).result == "OK"
        assert played.events == [UnknownReply(uid=NEVER_SENT)]


@pytest.mark.asyncio
async def test_a_connector_opens_connections_that_share_a_script_and_closes_them() -> None:
    clock, events = VirtualClock(), list[Event]()
    connector = ScriptedConnector({Op.NOOP: in_turn("a", "b", NEVER)}, clock=clock, timeout_ns=5)
    first: Connection = connector.open(V056, events.append)
    second: Connection = connector.open(V047, events.append)
    assert [(await rpc.call(Op.NOOP)).result for rpc in (first, second)] == ["a", "b"]
    with pytest.raises(NoAnswerError):
        await first.call(Op.NOOP)
    assert clock.now_ns() == 5
    assert [rpc.dialect for rpc in connector.connections] == [V056, V047]
    waiting = asyncio.create_task(second.call(Op.NOOP))
    await asyncio.sleep(0)
    await connector.close()
    with pytest.raises(ConnectionLostError):
        await waiting

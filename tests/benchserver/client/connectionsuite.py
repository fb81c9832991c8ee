"""What every connection must do, whatever carries it: laws over a link to a peer that a test leads.

A law is a coroutine function of a link.  Each implementation brings a way to make links, and a test
that plays every law on a fresh one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from benchserver.client.connection import (
    BadAnswerError,
    Connection,
    ConnectionLostError,
    NoAnswerError,
)
from benchserver.clock import NS_PER_MS, NS_PER_S
from protocol.errors import LocalProtocolError
from protocol.messages import VOID, DuplicateReply, Event, LateReply, MalformedReply, UnknownReply
from protocol.ops import Op

_SOON_NS = 50 * NS_PER_MS
_LONG_NS = 3600 * NS_PER_S
_WITHIN_S = 20
MANY = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the peer has read it."""

    number: int
    """How many were sent before it on its connection."""
    op: Op
    args: tuple[Any, ...]


class Peer(Protocol):
    """The other end, which does as a test says."""

    async def asked(self) -> Asked:
        """Return the next request."""
        ...

    async def answer(self, asked: Asked, result: Any, *, bad: bool = False) -> None:
        """Answer a request, or break the protocol with it; it may have been answered before."""
        ...

    async def answer_nothing(self) -> None:
        """Answer a request that was never sent."""
        ...

    def go(self) -> None:
        """End the connection."""
        ...

    def come_back(self) -> None:
        """Listen again where it was."""
        ...


@dataclass(frozen=True, slots=True)
class Link:
    """A connection, its peer, and what the observer heard."""

    connection: Connection
    peer: Peer
    url: str
    """What errors call the peer."""
    events: asyncio.Queue[Event]
    entries: Callable[[], int]
    """How many calls have an entry in any of the connection's tables."""

    def call(self, op: Op, *args: Any, timeout_ns: int = _LONG_NS) -> asyncio.Task[Any]:
        return asyncio.create_task(self.connection.call(op, *args, timeout_ns=timeout_ns))

    async def asked(self, op: Op, *args: Any, timeout_ns: int = _LONG_NS) -> Any:
        """Begin a call; return it, and its request once the peer has read it."""
        call = self.call(op, *args, timeout_ns=timeout_ns)
        heard = asyncio.ensure_future(self.peer.asked())
        await asyncio.wait({call, heard}, return_when=asyncio.FIRST_COMPLETED)
        if not heard.done():
            heard.cancel()
            raise AssertionError(f"the call ended before it was heard of: {await call}")
        return call, heard.result()

    async def event(self) -> Event:
        return await asyncio.wait_for(self.events.get(), _WITHIN_S)


Law = Callable[[Link], Awaitable[None]]


async def an_answer_ends_its_call(link: Link) -> None:
    call, asked = await link.asked(Op.PING, 300)
    assert (asked.op, asked.args) == (Op.PING, (300,))
    await link.peer.answer(asked, True)
    reply = await call
    assert (reply.op, reply.result) == (Op.PING, True)
    assert reply.latency_ns >= 0
    assert link.connection.standing.greeted
    assert link.connection.standing.lost == 0


async def what_is_owed_and_how_much_was_answered_is_known(link: Link) -> None:
    ping, pinged = await link.asked(Op.PING, 300)
    call, asked = await link.asked(Op.GET_CHUNK_SIZE)
    assert link.connection.standing.owed == (Op.PING, Op.GET_CHUNK_SIZE)
    await link.peer.answer(pinged, True)
    await ping
    assert link.connection.standing.answered == 0  # a PING says nothing of the work
    await link.peer.answer(asked, 64)
    await call
    assert link.connection.standing.answered == 1
    assert len(link.connection.standing.owed) == 0


async def an_answer_may_have_no_result(link: Link) -> None:
    call, asked = await link.asked(Op.QUERY_PREFETCH_STATUS, "r")
    await link.peer.answer(asked, VOID)
    assert (await call).result is VOID


async def answers_in_another_order_reach_their_calls(link: Link) -> None:
    calls = [await link.asked(Op.GET_CHUNK_SIZE) for _ in range(3)]
    for index in (2, 0, 1):
        await link.peer.answer(calls[index][1], 64 + index)
    replies = await asyncio.gather(*(call for call, _ in calls))
    assert [reply.result for reply in replies] == [64, 65, 66]


async def many_calls_wait_at_once(link: Link) -> None:
    calls = [await link.asked(Op.GET_CHUNK_SIZE) for _ in range(MANY)]
    assert len({asked.number for _, asked in calls}) == MANY
    for index, (_, asked) in reversed(list(enumerate(calls))):
        await link.peer.answer(asked, index + 1)
    for index, (call, _) in enumerate(calls):
        assert (await call).result == index + 1


async def no_answer_in_time_and_then_a_late_one(link: Link) -> None:
    call, asked = await link.asked(Op.NOOP, timeout_ns=_SOON_NS)
    with pytest.raises(NoAnswerError, match=r"^NOOP: no answer within 0\.05 s$") as caught:
        await call
    assert (caught.value.op, caught.value.reason) == (Op.NOOP, "no answer within 0.05 s")
    assert not caught.value.ours
    assert link.entries() == 0
    await link.peer.answer(asked, "OK")
    late = await link.event()
    assert isinstance(late, LateReply)
    assert late.op is Op.NOOP
    assert not late.withdrawn
    await link.peer.answer(asked, "OK")
    assert isinstance(await link.event(), DuplicateReply)


async def a_late_answer_is_not_taken_for_the_next_call(link: Link) -> None:
    first, late = await link.asked(Op.GET_CHUNK_SIZE, timeout_ns=_SOON_NS)
    with pytest.raises(NoAnswerError, match=r"within 0\.05 s"):
        await first
    second, asked = await link.asked(Op.GET_CHUNK_SIZE)
    await link.peer.answer(late, 7)
    await link.peer.answer(asked, 8)
    assert (await second).result == 8
    assert isinstance(await link.event(), LateReply)


async def one_that_is_late_holds_up_no_other(link: Link) -> None:
    slow, _ = await link.asked(Op.NOOP, timeout_ns=_SOON_NS)
    quick, asked = await link.asked(Op.PING, 1)
    await link.peer.answer(asked, False)
    assert (await quick).result is False
    with pytest.raises(NoAnswerError):
        await slow


async def a_second_answer_is_told(link: Link) -> None:
    call, asked = await link.asked(Op.NOOP)
    for _ in range(2):
        await link.peer.answer(asked, "OK")
    assert (await call).result == "OK"
    event = await link.event()
    assert isinstance(event, DuplicateReply)
    assert event.op is Op.NOOP


async def an_answer_to_nothing_is_told_and_ends_no_call(link: Link) -> None:
    call, asked = await link.asked(Op.NOOP)
    await link.peer.answer_nothing()
    assert isinstance(await link.event(), UnknownReply)
    assert not call.done()
    await link.peer.answer(asked, "OK")
    assert (await call).result == "OK"


async def a_bad_answer_is_told_and_ends_its_call_alone(link: Link) -> None:
    bad, asked = await link.asked(Op.NOOP)
    good, other = await link.asked(Op.NOOP)
    await link.peer.answer(asked, VOID, bad=True)
    with pytest.raises(BadAnswerError, match=r"^NOOP: ") as caught:
        await bad
    event = await link.event()
    assert isinstance(event, MalformedReply)
    assert event.reason == caught.value.reason
    assert not good.done()
    await link.peer.answer(other, "OK")
    assert (await good).result == "OK"


async def a_lost_connection_ends_all_calls_and_those_to_come(link: Link) -> None:
    calls = [await link.asked(Op.NOOP), await link.asked(Op.PING, None)]
    link.peer.go()
    for (call, _), name in zip(calls, ("NOOP", "PING"), strict=True):
        with pytest.raises(
            ConnectionLostError, match=f"^{name}: the connection to {link.url} was lost"
        ):
            await asyncio.wait_for(call, _WITHIN_S)
    assert link.entries() == 0
    for _ in range(3):
        with pytest.raises(ConnectionLostError, match=r"^NOOP: not sent, the connection to"):
            await asyncio.wait_for(link.call(Op.NOOP), _WITHIN_S)
    assert link.connection.standing.lost == 1
    assert link.connection.standing.greeted


async def calls_go_on_once_the_server_is_back(link: Link) -> None:
    call, _ = await link.asked(Op.NOOP)
    link.peer.go()
    with pytest.raises(ConnectionLostError):
        await call
    link.peer.come_back()
    while True:
        # Until the connection has noticed, it may say that the call was not sent.
        again, heard = link.call(Op.NOOP), asyncio.ensure_future(link.peer.asked())
        await asyncio.wait({again, heard}, return_when=asyncio.FIRST_COMPLETED)
        if heard.done():
            break
        heard.cancel()
        await asyncio.gather(heard, return_exceptions=True)
        with pytest.raises(ConnectionLostError):
            await again
        await asyncio.sleep(0.01)
    await link.peer.answer(heard.result(), "OK")
    assert (await again).result == "OK"
    assert link.connection.standing.lost == 1


async def a_cancelled_call_leaves_nothing_and_its_answer_is_late(link: Link) -> None:
    call, asked = await link.asked(Op.NOOP)
    other, waiting = await link.asked(Op.NOOP)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert link.entries() == 1
    await link.peer.answer(asked, "OK")
    late = await link.event()
    assert isinstance(late, LateReply)
    assert late.withdrawn, "nobody was too slow"
    await link.peer.answer(waiting, "OK")
    assert (await other).result == "OK"


async def a_call_cancelled_before_it_began_leaves_nothing(link: Link) -> None:
    call = link.call(Op.NOOP)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert link.entries() == 0


async def close_ends_waiting_calls_and_those_to_come(link: Link) -> None:
    call, _ = await link.asked(Op.NOOP)
    for _ in range(2):
        await link.connection.close()
    with pytest.raises(ConnectionLostError, match=r"^NOOP: the connection was closed$"):
        await call
    assert link.entries() == 0
    with pytest.raises(ConnectionLostError, match=r"^NOOP: not sent"):
        await link.connection.call(Op.NOOP)
    assert link.connection.standing.lost == 0, "nobody lost it"


async def what_cannot_be_sent_is_not_entered(link: Link) -> None:
    with pytest.raises(LocalProtocolError, match="takes"):
        await link.connection.call(Op.NOOP, 1)
    with pytest.raises(LocalProtocolError, match="cannot be packed"):
        await link.connection.call(Op.PING, object())
    assert link.entries() == 0
    call, asked = await link.asked(Op.NOOP)
    assert asked.number == 0, "the refused calls used none"
    await link.peer.answer(asked, "OK")
    assert (await call).result == "OK"


LAWS: tuple[Law, ...] = (
    an_answer_ends_its_call,
    an_answer_may_have_no_result,
    what_is_owed_and_how_much_was_answered_is_known,
    answers_in_another_order_reach_their_calls,
    many_calls_wait_at_once,
    no_answer_in_time_and_then_a_late_one,
    a_late_answer_is_not_taken_for_the_next_call,
    one_that_is_late_holds_up_no_other,
    a_second_answer_is_told,
    an_answer_to_nothing_is_told_and_ends_no_call,
    a_bad_answer_is_told_and_ends_its_call_alone,
    a_lost_connection_ends_all_calls_and_those_to_come,
    calls_go_on_once_the_server_is_back,
    a_cancelled_call_leaves_nothing_and_its_answer_is_late,
    a_call_cancelled_before_it_began_leaves_nothing,
    close_ends_waiting_calls_and_those_to_come,
    what_cannot_be_sent_is_not_entered,
)


def name_of(law: Law) -> str:
    """Return the law's name, for a test's id."""
    return str(getattr(law, "__name__", law))


async def keep(law: Law, link: Link) -> None:
    """See that a law holds, in time, and that nothing of its calls is left."""
    await asyncio.wait_for(law(link), _WITHIN_S)
    assert link.entries() == 0
    assert link.events.empty()

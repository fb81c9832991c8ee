"""Connections over ZMQ and the turns of the event loop: what one takes, and who waits for it."""

from __future__ import annotations

import asyncio
import itertools
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
import pytest_asyncio
import zmq
import zmq.asyncio

from benchserver.client.connection import BadAnswerError, NoAnswerError
from benchserver.client.zmq import ZmqConnection, ZmqConnector
from benchserver.clock import NS_PER_MS, NS_PER_S, RealClock
from protocol.dialects import V056
from protocol.keys import CacheKey
from protocol.messages import (
    Event,
    LateReply,
    MalformedReply,
    UnknownReply,
)
from protocol.ops import Op
from tests.benchserver.client.zmqstage import (
    NOOP,
    OK,
    PING,
    Peer,
    ZmqLink,
    connected,
    linked,
)

pytestmark = pytest.mark.usefixtures("leak_free")


async def stand_still(peer: Peer, call: asyncio.Task[Any]) -> None:
    """Block the loop, and with it the peer, until long after the call's deadline."""
    await peer.receive()
    time.sleep(0.5)  # noqa: ASYNC251 - that is what is played
    assert not call.done()


@pytest.mark.asyncio
async def test_an_answer_is_found_that_came_while_this_process_stood_still() -> None:
    async with linked(timeout_ns=100 * NS_PER_MS) as link:
        call = link.call(Op.NOOP)
        await stand_still(link.peer, call)
        # As ZMQ's own thread needs a moment to fetch what lies in the kernel.
        await asyncio.sleep(0.02)
        await link.peer.send(b"\x00", NOOP, OK)
        assert (await call).result == "OK"
        assert link.events.empty()
        link.assert_idle()


@pytest.mark.asyncio
async def test_what_does_not_come_then_is_said_to_be_ours() -> None:
    async with linked(timeout_ns=100 * NS_PER_MS) as link:
        call = link.call(Op.NOOP)
        await stand_still(link.peer, call)
        words = (
            r"^NOOP: no answer within 0\.1 s; bench-server itself stood still for \d+\.\d s of "
            r"that time \(stopped, or without a CPU\), so this says nothing about the server$"
        )
        with pytest.raises(NoAnswerError, match=words) as caught:
            await call
        assert caught.value.ours
        link.assert_idle()
        await link.peer.send(b"\x00", NOOP, OK)
        late = await link.events.get()
        assert isinstance(late, LateReply)
        assert late.withdrawn, "the server is not blamed for it"


@pytest.mark.asyncio
async def test_each_call_has_its_own_deadline_in_whatever_order_they_come() -> None:
    """One alarm serves all that wait: the earliest deadline sets it, and the others remain."""
    async with linked() as link:
        patient = link.call(Op.NOOP)
        uid, op = await link.peer.receive()
        ended = list[int]()

        async def ends(budget_ms: int) -> None:
            with pytest.raises(NoAnswerError):
                await link.client.call(Op.NOOP, timeout_ns=budget_ms * NS_PER_MS)
            ended.append(budget_ms)

        await asyncio.gather(*map(ends, (400, 50, 200, 100)))
        assert ended == [50, 100, 200, 400]
        for _ in ended:
            await link.peer.receive()
        assert not patient.done()
        await link.peer.send(uid, op, OK)
        assert (await patient).result == "OK"
        link.assert_idle()


@pytest.mark.asyncio
async def test_the_alarm_of_a_call_that_has_ended_ends_no_other() -> None:
    async with linked() as link:
        first = link.call(Op.NOOP, timeout_ns=100 * NS_PER_MS)
        await link.peer.send(*await link.peer.receive(), OK)
        await first
        second = link.call(Op.NOOP)
        uid, op = await link.peer.receive()
        with pytest.raises(NoAnswerError):
            await link.client.call(Op.NOOP, timeout_ns=200 * NS_PER_MS)
        assert not second.done()
        await link.peer.receive()
        await link.peer.send(uid, op, OK)
        assert (await second).result == "OK"


class Endless:
    """A socket that always has another message: a peer sends faster than anybody reads."""

    def __init__(self, *frames: bytes, guard: int = 50_000) -> None:
        self._frames = itertools.cycle(frames)
        self._size = len(frames)
        self._guard = guard
        self.taken = 0

    def recv(self, flags: int = 0, *, copy: bool = True) -> Any:
        self.taken += 1
        assert self.taken < self._guard, "it reads on and on"
        frame = next(self._frames)
        return frame if copy else SimpleNamespace(bytes=frame, more=self.taken % self._size != 0)

    def getsockopt(self, option: int) -> int:
        assert option == zmq.EVENTS
        return zmq.POLLIN

    def recv_multipart(self, flags: int = 0) -> list[bytes]:
        return [self.recv() for _ in range(self._size)]

    def send(self, frame: bytes, flags: int = 0) -> None:
        pass


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "frames", [(b"\x07", NOOP, OK), (b"\xc1",), (b"\x07", *[b""] * 5000)], ids=["3", "1", "5001"]
)
async def test_deadlines_hold_while_a_peer_floods(
    frames: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with linked() as link:
        await settled(link)
        flood = Endless(*frames, guard=10_000_000)
        monkeypatch.setattr(link.client, "_socket", flood)
        with pytest.raises(NoAnswerError, match=r"no answer within 0\.05 s"):
            await link.client.call(Op.NOOP, timeout_ns=50 * NS_PER_MS)
        assert flood.taken > 200, "the flood was read meanwhile"
        monkeypatch.undo()
        link.client._frames = []


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "frames", [(b"\x07", NOOP, OK), (b"\x07", *[b""] * 5000)], ids=["3", "5001"]
)
async def test_one_turn_of_the_loop_reads_so_much(
    frames: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with linked() as link:
        await settled(link)
        monkeypatch.setattr(link.client, "_socket", Endless(*frames))
        link.client._drain()
        monkeypatch.undo()
        link.client._frames = []


@pytest.mark.asyncio
async def test_one_turn_of_the_loop_reads_so_many_events(monkeypatch: pytest.MonkeyPatch) -> None:
    async with linked() as link:
        await settled(link)
        event = struct.pack("=hi", zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, 0)
        events = Endless(event, b"tcp://127.0.0.1:1")
        monkeypatch.setattr(link.client, "_monitor", events)
        link.client._drain_monitor()
        monkeypatch.undo()
        assert 2 <= events.taken < 1000


async def settled(link: ZmqLink) -> None:
    """Return once the client is connected and has nothing left to look at."""
    call = link.call(Op.NOOP)
    uid, op = await link.peer.receive()
    await link.peer.send(uid, op, OK)
    await call
    while link.client._look_due or not link.client.standing.greeted:  # noqa: ASYNC110 - nothing tells it
        await asyncio.sleep(0.001)


class PromptPeer:
    """A ROUTER in a thread of its own: answers come while the client still looks for them.

    `answer` turns a request's frames into the replies to send, in order.
    """

    def __init__(self, answer: Callable[[list[bytes]], list[list[bytes]]]) -> None:
        self._context = zmq.Context[zmq.Socket[bytes]]()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self.port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        self._answer = answer
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            identity, *frames = self._socket.recv_multipart()
            if not frames[0]:
                break
            for reply in self._answer(frames):
                self._socket.send_multipart([identity, *reply])
        self._socket.close(linger=0)

    def close(self) -> None:
        with self._context.socket(zmq.DEALER) as door:
            door.connect(f"tcp://127.0.0.1:{self.port}")
            door.send_multipart([b"", b""])
            self._thread.join()
        self._context.destroy(linger=0)


@asynccontextmanager
async def prompt(
    answer: Callable[[list[bytes]], list[list[bytes]]],
) -> AsyncIterator[tuple[ZmqConnection, asyncio.Queue[Event]]]:
    peer, events = PromptPeer(answer), asyncio.Queue[Event]()
    try:
        async with connected(f"tcp://127.0.0.1:{peer.port}", events, 5 * NS_PER_S) as client:
            yield client, events
            assert (client._waiting, client._early, client._ops) == ({}, {}, {})
    finally:
        peer.close()


@pytest.mark.asyncio
async def test_prompt_answers() -> None:
    async with prompt(lambda frames: [[frames[0], frames[1], OK]]) as (client, events):
        for _ in range(300):
            assert (await client.call(Op.NOOP)).result == "OK"
        for _ in range(20):
            replies = await asyncio.gather(*(client.call(Op.NOOP) for _ in range(20)))
            assert {reply.result for reply in replies} == {"OK"}
        assert events.empty()


@pytest.mark.asyncio
async def test_a_prompt_answer_behind_another_message_is_found() -> None:
    """Two messages announce themselves once; a look that takes one alone never sees the other."""

    def answer(frames: list[bytes]) -> list[list[bytes]]:
        return [[b"\x7f", NOOP, OK], [frames[0], frames[1], OK]]

    async with prompt(answer) as (client, events):
        for _ in range(100):
            assert (await client.call(Op.NOOP)).result == "OK"
            assert await events.get() == UnknownReply(uid=127)


@pytest.mark.asyncio
async def test_a_prompt_bad_answer() -> None:
    async with prompt(lambda frames: [[frames[0], PING, OK]]) as (client, events):
        for uid in range(20):
            with pytest.raises(BadAnswerError, match="is for operation 22"):
                await client.call(Op.NOOP)
            event = await events.get()
            assert isinstance(event, MalformedReply)
            assert event.uid == uid


# The loop stands still for a quick answer only if nobody else waits


KEY = CacheKey(
    model_name="m", world_size=1, worker_id=0, token_ids=(1,), start=0, end=1, request_id="r"
)


class Listening:
    """The socket of a connection; notes whether a look at it may wait."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self.waits: list[bool] = []

    def recv(self, flags: int, *, copy: bool) -> Any:
        self.waits.append(not flags & zmq.NOBLOCK)
        return self._socket.recv(flags, copy=copy)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


class TwoLinks:
    """Two connections of one connector, and what the first of them waits for in the kernel."""

    def __init__(self, connector: ZmqConnector, peer: Peer) -> None:
        self.peer = peer
        self.first = connector.open(V056, lambda event: None)
        self.second = connector.open(V056, lambda event: None)
        self.listening = Listening(self.first._socket)
        self.first._socket = cast(Any, self.listening)

    async def holds(self, op: Op = Op.NOOP, *args: Any) -> bool:
        """Tell whether a call on the first connection holds the loop, with nobody to answer it."""
        await asyncio.sleep(0)  # another turn of the loop
        self.listening.waits.clear()
        with pytest.raises(NoAnswerError):
            await self.first.call(op, *args, timeout_ns=5 * NS_PER_MS)
        return any(self.listening.waits)


@pytest_asyncio.fixture
async def two() -> AsyncIterator[TwoLinks]:
    peer = Peer()
    connector = ZmqConnector(
        f"tcp://127.0.0.1:{peer.port}", clock=RealClock(), timeout_ns=30 * NS_PER_S
    )
    try:
        yield TwoLinks(connector, peer)
    finally:
        await connector.close()
        peer.close()


@pytest.mark.asyncio
async def test_a_quick_call_that_is_alone_may_hold_the_loop(two: TwoLinks) -> None:
    assert await two.holds()
    assert not await two.holds(Op.COMMIT_STORE, KEY, 1, b""), "it moves data: that is not quick"


@pytest.mark.asyncio
async def test_no_call_holds_the_loop_while_one_waits_on_another_connection(two: TwoLinks) -> None:
    async def close() -> None:
        await two.second.close()

    async def cancel() -> None:
        waiting.cancel()

    for end in (cancel, close):
        assert await two.holds()
        waiting = asyncio.create_task(two.second.call(Op.NOOP))
        await asyncio.sleep(0)
        assert not await two.holds()
        assert not waiting.done()
        await end()
        await asyncio.gather(waiting, return_exceptions=True)
    assert await two.holds()


class Echo:
    """A socket that has an answer as soon as something was sent."""

    def __init__(self) -> None:
        self._frames: list[bytes] = []

    def send(self, frame: bytes, flags: int) -> None:
        self._frames += [frame] if flags & zmq.SNDMORE else [frame, OK]

    def recv(self, flags: int = 0, *, copy: bool) -> Any:
        if not self._frames:
            raise zmq.Again
        frame = self._frames.pop(0)
        return SimpleNamespace(bytes=frame, more=bool(self._frames))

    def getsockopt(self, option: int) -> int:
        assert option == zmq.EVENTS
        return zmq.POLLIN if self._frames else 0


@pytest.mark.asyncio
async def test_quick_calls_in_a_row_let_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is answered before it would have to wait: nothing else makes them give the loop up."""
    turns, ended = 0, False

    async def other() -> None:
        nonlocal turns
        while not ended:
            turns += 1
            await asyncio.sleep(0)

    async with linked() as link:
        await settled(link)
        monkeypatch.setattr(link.client, "_socket", Echo())
        counting = asyncio.create_task(other())
        started_s = time.process_time()  # a busy machine may leave us no other
        while time.process_time() < started_s + 0.2:
            await link.client.call(Op.NOOP)
        ended = True
        await counting
        monkeypatch.undo()
    assert turns > 10, "2 ms each, in 200 ms"

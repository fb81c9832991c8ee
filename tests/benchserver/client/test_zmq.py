"""Connections over ZMQ against a scripted ROUTER on loopback; frames are literal bytes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import zmq
import zmq.asyncio

from benchserver.client.connection import BadAnswerError, ConnectionLostError, NoAnswerError
from benchserver.client.zmq import ZmqConnection, ZmqConnector
from benchserver.clock import NS_PER_MS, NS_PER_S, RealClock, VirtualClock
from protocol.dialects import V056
from protocol.errors import LocalProtocolError
from protocol.messages import (
    NO_UID,
    VOID,
    DuplicateReply,
    Event,
    LateReply,
    MalformedReply,
    UnknownReply,
)
from protocol.ops import Op
from protocol.session import MAX_PENDING

pytestmark = pytest.mark.usefixtures("leak_free")

OK = b"\xa2OK"
NOOP, PING, CHUNK_SIZE = b"\x18", b"\x16", b"\x15"


class Peer:
    """A ROUTER that answers what the test tells it to; one client."""

    def __init__(self, address: str = "127.0.0.1", port: int = 0) -> None:
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.IPV6, "[" in address)
        if port:
            self._socket.bind(f"tcp://{address}:{port}")
            self.port = port
        else:
            self.port = self._socket.bind_to_random_port(f"tcp://{address}")
        self._client = b""

    async def receive(self) -> list[bytes]:
        """Return the next request's frames, without the identity."""
        self._client, *frames = await self._socket.recv_multipart()
        return frames

    async def send(self, *frames: bytes) -> None:
        await self._socket.send_multipart([self._client, *frames])

    def close(self) -> None:
        self._context.destroy(linger=0)


class Link:
    """A client and its peer."""

    def __init__(self, peer: Peer, client: ZmqConnection, events: asyncio.Queue[Event]) -> None:
        self.peer = peer
        self.client = client
        self.events = events

    def call(self, op: Op, *args: Any, timeout_ns: int | None = None) -> asyncio.Task[Any]:
        return asyncio.create_task(self.client.call(op, *args, timeout_ns=timeout_ns))

    def assert_idle(self) -> None:
        """Fail if any entry of a call is left."""
        assert self.client._waiting == {}
        assert self.client._early == {}
        assert self.client._ops == {}
        assert self.client._session.pending_count == 0


@asynccontextmanager
async def linked(
    timeout_ns: int = 30 * NS_PER_S, clock: RealClock | VirtualClock | None = None
) -> AsyncIterator[Link]:
    peer, events = Peer(), asyncio.Queue[Event]()
    async with connected(f"tcp://127.0.0.1:{peer.port}", events, timeout_ns, clock) as client:
        link = Link(peer, client, events)
        try:
            yield link
        finally:
            link.peer.close()


@asynccontextmanager
async def connected(
    url: str,
    events: asyncio.Queue[Event],
    timeout_ns: int = 30 * NS_PER_S,
    clock: RealClock | VirtualClock | None = None,
) -> AsyncIterator[ZmqConnection]:
    connector = ZmqConnector(url, clock=clock or RealClock(), timeout_ns=timeout_ns)
    try:
        yield connector.open(V056, events.put_nowait)
    finally:
        await connector.close()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), 20)

    asyncio.run(bounded())


def test_an_answer_ends_the_call() -> None:
    async def main() -> None:
        async with linked() as link:
            call = link.call(Op.PING, 300)
            assert await link.peer.receive() == [b"\x00", PING, b"\xcd\x01\x2c"]
            await link.peer.send(b"\x00", PING, b"\xc3")
            reply = await call
            assert (reply.uid, reply.op, reply.result) == (0, Op.PING, True)
            assert reply.latency_ns > 0
            call = link.call(Op.QUERY_PREFETCH_STATUS, "r")
            assert await link.peer.receive() == [b"\x01", b"\x09", b"\xa1r"]
            await link.peer.send(b"\x01", b"\x09")
            assert (await call).result is VOID
            assert link.events.empty()
            link.assert_idle()

    run(main)


def test_latency_is_from_sending_to_receiving_on_the_clock() -> None:
    async def main() -> None:
        clock = VirtualClock(1000)
        async with linked(clock=clock) as link:
            call = link.call(Op.NOOP)
            await link.peer.receive()
            await clock.sleep_ns(345)
            await link.peer.send(b"\x00", NOOP, OK)
            assert (await call).latency_ns == 345

    run(main)


def test_answers_in_another_order_reach_their_calls() -> None:
    async def main() -> None:
        async with linked() as link:
            calls = [link.call(Op.GET_CHUNK_SIZE) for _ in range(3)]
            for _ in calls:
                await link.peer.receive()
            for uid in (2, 0, 1):
                await link.peer.send(bytes([uid]), CHUNK_SIZE, bytes([0x40 + uid]))
            replies = await asyncio.gather(*calls)
            assert [reply.result for reply in replies] == [0x40, 0x41, 0x42]

    run(main)


@pytest.mark.usefixtures("never_late")
def test_no_answer_in_time_and_then_a_late_one() -> None:
    async def main() -> None:
        async with linked(timeout_ns=50 * NS_PER_MS) as link:
            call = link.call(Op.NOOP)
            await link.peer.receive()
            with pytest.raises(NoAnswerError, match=r"^NOOP: no answer within 0\.05 s$") as caught:
                await call
            assert (caught.value.op, caught.value.reason) == (Op.NOOP, "no answer within 0.05 s")
            link.assert_idle()
            await link.peer.send(b"\x00", NOOP, OK)
            late = await link.events.get()
            assert isinstance(late, LateReply)
            assert (late.uid, late.op) == (0, Op.NOOP)
            assert late.late_ns > 0
            await link.peer.send(b"\x00", NOOP, OK)
            assert await link.events.get() == DuplicateReply(uid=0, op=Op.NOOP)

    run(main)


def test_a_late_answer_is_not_taken_for_the_next_call() -> None:
    async def main() -> None:
        async with linked() as link:
            first = link.call(Op.GET_CHUNK_SIZE, timeout_ns=20 * NS_PER_MS)
            await link.peer.receive()
            with pytest.raises(NoAnswerError, match=r"within 0\.02 s"):
                await first
            second = link.call(Op.GET_CHUNK_SIZE)
            await link.peer.receive()
            await link.peer.send(b"\x00", CHUNK_SIZE, b"\x07")
            await link.peer.send(b"\x01", CHUNK_SIZE, b"\x08")
            assert (await second).result == 8
            assert isinstance(await link.events.get(), LateReply)

    run(main)


def test_a_second_answer_is_told() -> None:
    async def main() -> None:
        async with linked() as link:
            call = link.call(Op.NOOP)
            await link.peer.receive()
            for _ in range(2):
                await link.peer.send(b"\x00", NOOP, OK)
            assert (await call).result == "OK"
            assert await link.events.get() == DuplicateReply(uid=0, op=Op.NOOP)

    run(main)


def test_an_answer_to_nothing_is_told_and_ends_no_call() -> None:
    async def main() -> None:
        async with linked() as link:
            call = link.call(Op.NOOP)
            await link.peer.receive()
            await link.peer.send(b"\x05", NOOP, OK)
            assert await link.events.get() == UnknownReply(uid=5)
            assert not call.done()
            await link.peer.send(b"\x00", NOOP, OK)
            assert (await call).result == "OK"

    run(main)


@pytest.mark.parametrize(
    "frames",
    [
        (b"\x00",),
        (b"\xa1a", NOOP, OK),
        (b"\xc1", NOOP, OK),
        (b"", NOOP, OK),
        (b"\xff", NOOP, OK),
        (b"\x00" * 300, NOOP, OK),
    ],
)
def test_frames_that_name_no_call_are_told(frames: tuple[bytes, ...]) -> None:
    async def main() -> None:
        async with linked() as link:
            call = link.call(Op.NOOP)
            await link.peer.receive()
            await link.peer.send(*frames)
            event = await link.events.get()
            assert isinstance(event, MalformedReply)
            assert event.uid == NO_UID
            assert not call.done()
            await link.peer.send(b"\x00", NOOP, OK)
            assert (await call).result == "OK"

    run(main)


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ((NOOP,), "the reply lacks its result"),
        ((NOOP, b"\xc1"), "noop result: 1 bytes"),
        ((NOOP, b"\x07"), "noop result: got 7, expected a string"),
        ((NOOP, OK, OK), "the reply has 4 frames"),
        ((PING, b"\xc3"), "the reply to noop \\(id 24\\) is for operation 22"),
        ((b"\xa4noop", OK), "is for operation 'noop'"),
    ],
)
def test_a_bad_answer_ends_its_call(frames: tuple[bytes, ...], reason: str) -> None:
    async def main() -> None:
        async with linked() as link:
            call = link.call(Op.NOOP)
            await link.peer.receive()
            await link.peer.send(b"\x00", *frames)
            with pytest.raises(BadAnswerError, match=reason):
                await call
            event = await link.events.get()
            assert isinstance(event, MalformedReply)
            assert event.uid == 0
            link.assert_idle()

    run(main)


def test_a_lost_connection_ends_all_calls_at_once() -> None:
    async def main() -> None:
        async with linked() as link:
            calls = [link.call(Op.NOOP), link.call(Op.PING, None)]
            for _ in calls:
                await link.peer.receive()
            link.peer.close()
            for call, name in zip(calls, ("NOOP", "PING"), strict=True):
                text = f"^{name}: the connection to tcp://127.0.0.1:{link.peer.port} was lost"
                with pytest.raises(ConnectionLostError, match=text):
                    # Far below the deadline of 30 s.
                    await asyncio.wait_for(call, 5)
            assert link.client.standing.lost == 1
            link.assert_idle()

    run(main)


def test_while_the_connection_is_lost_calls_end_at_once() -> None:
    async def main() -> None:
        async with linked() as link:
            call = link.call(Op.NOOP)
            await link.peer.receive()
            link.peer.close()
            with pytest.raises(ConnectionLostError):
                await call
            for _ in range(3):
                with pytest.raises(ConnectionLostError, match=r"^NOOP: not sent, the connection"):
                    await asyncio.wait_for(link.client.call(Op.NOOP), 5)
            assert link.client.standing.lost == 1
            link.assert_idle()

    run(main)


def test_a_server_that_never_was_there_is_no_lost_connection() -> None:
    async def main() -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            url = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
            async with connected(url, asyncio.Queue(), 50 * NS_PER_MS) as client:
                with pytest.raises(NoAnswerError):
                    await client.call(Op.NOOP)
                assert client.standing.lost == 0

    run(main)


def test_calls_go_on_once_the_server_is_back() -> None:
    async def main() -> None:
        async with linked() as link:
            call = link.call(Op.NOOP)
            await link.peer.receive()
            link.peer.close()
            with pytest.raises(ConnectionLostError):
                await call
            link.peer = Peer(port=link.peer.port)
            while True:
                # Until the client has noticed, it may say that the call was not sent.
                again = link.call(Op.NOOP)
                heard = asyncio.ensure_future(link.peer.receive())
                await asyncio.wait({again, heard}, return_when=asyncio.FIRST_COMPLETED)
                if heard.done():
                    break
                heard.cancel()
                with pytest.raises(ConnectionLostError):
                    await again
                await asyncio.sleep(0.01)
            uid, op = heard.result()
            await link.peer.send(uid, op, OK)
            assert (await again).result == "OK"

    run(main)


def test_a_cancelled_call_leaves_nothing_and_its_answer_is_late() -> None:
    async def main() -> None:
        async with linked() as link:
            call = link.call(Op.NOOP)
            await link.peer.receive()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            link.assert_idle()
            await link.peer.send(b"\x00", NOOP, OK)
            assert isinstance(await link.events.get(), LateReply)

    run(main)


def test_a_call_cancelled_before_it_began_leaves_nothing() -> None:
    async def main() -> None:
        async with linked() as link:
            call = link.call(Op.NOOP)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            link.assert_idle()

    run(main)


def test_close_ends_waiting_calls() -> None:
    async def main() -> None:
        async with linked() as link:
            call = link.call(Op.NOOP)
            await link.peer.receive()
            await link.client.close()
            with pytest.raises(ConnectionLostError, match=r"^NOOP: the connection was closed$"):
                await call
            link.assert_idle()

    run(main)


def test_what_cannot_be_sent_is_not_entered() -> None:
    async def main() -> None:
        async with linked() as link:
            with pytest.raises(LocalProtocolError, match="takes"):
                await link.client.call(Op.NOOP, 1)
            with pytest.raises(LocalProtocolError, match="cannot be packed"):
                await link.client.call(Op.PING, object())
            link.assert_idle()
            # The refused calls used no uid.
            call = link.call(Op.NOOP)
            assert await link.peer.receive() == [b"\x00", NOOP]
            await link.peer.send(b"\x00", NOOP, OK)
            await call

    run(main)


def test_a_peer_that_speaks_zmq_has_greeted() -> None:
    async def main() -> None:
        async with linked() as link:
            call = link.call(Op.NOOP)
            await link.peer.receive()
            while not link.client.standing.greeted:  # noqa: ASYNC110 - nothing tells that it has changed
                await asyncio.sleep(0.001)
            assert not link.client.standing.spoke_otherwise
            link.peer.close()
            with pytest.raises(ConnectionLostError):
                await call
            assert link.client.standing.greeted, "it did, whatever became of it"
            assert not link.client.standing.spoke_otherwise

    run(main)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 100])
def test_a_peer_that_does_not_speak_zmq_never_greets(said: bytes) -> None:
    async def main() -> None:
        ended = asyncio.Event()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(said)
            if not said:
                await ended.wait()
            writer.close()

        listener = await asyncio.start_server(handle, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        async with connected(f"tcp://127.0.0.1:{port}", asyncio.Queue(), 200 * NS_PER_MS) as client:
            with pytest.raises((NoAnswerError, ConnectionLostError)):
                await client.call(Op.NOOP)
            assert not client.standing.greeted
            assert client.standing.spoke_otherwise == bool(said)
        ended.set()
        listener.close()
        await listener.wait_closed()

    run(main)


def test_waiting_calls_are_bounded() -> None:
    async def main() -> None:
        async with linked() as link:
            calls = [link.call(Op.NOOP) for _ in range(MAX_PENDING)]
            await link.peer.receive()
            with pytest.raises(LocalProtocolError, match="1024 requests are waiting"):
                await link.client.call(Op.NOOP)
            await link.client.close()
            ended = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(error) for error in ended} == {ConnectionLostError}
            link.assert_idle()

    run(main)


def _has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


@pytest.mark.skipif(not _has_ipv6(), reason="no IPv6 loopback")
def test_an_ipv6_address_is_reached() -> None:
    async def main() -> None:
        peer = Peer("[::1]")
        async with connected(f"tcp://[::1]:{peer.port}", asyncio.Queue()) as client:
            call = asyncio.create_task(client.call(Op.NOOP))
            assert await peer.receive() == [b"\x00", NOOP]
            await peer.send(b"\x00", NOOP, OK)
            assert (await call).result == "OK"
        peer.close()

    run(main)


# This process stands still


async def stand_still(peer: Peer, call: asyncio.Task[Any]) -> None:
    """Block the loop, and with it the peer, until long after the call's deadline."""
    await peer.receive()
    time.sleep(0.5)  # noqa: ASYNC251 - that is what is played
    assert not call.done()


def test_an_answer_is_found_that_came_while_this_process_stood_still() -> None:
    async def main() -> None:
        async with linked(timeout_ns=100 * NS_PER_MS) as link:
            call = link.call(Op.NOOP)
            await stand_still(link.peer, call)
            # As ZMQ's own thread needs a moment to fetch what lies in the kernel.
            await asyncio.sleep(0.02)
            await link.peer.send(b"\x00", NOOP, OK)
            assert (await call).result == "OK"
            assert link.events.empty()
            link.assert_idle()

    run(main)


def test_what_does_not_come_then_is_said_to_be_ours() -> None:
    async def main() -> None:
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

    run(main)


# A peer that sends more than can be read


class Endless:
    """A socket that always has another message: a peer sends faster than anybody reads."""

    def __init__(self, *frames: bytes, guard: int = 50_000) -> None:
        self._frames = itertools.cycle(frames)
        self._size = len(frames)
        self._guard = guard
        self.taken = 0

    def recv(self, flags: int = 0) -> bytes:
        self.taken += 1
        assert self.taken < self._guard, "it reads on and on"
        return next(self._frames)

    def getsockopt(self, option: int) -> int:
        assert option == zmq.RCVMORE
        return int(self.taken % self._size != 0)

    def recv_multipart(self, flags: int = 0) -> list[bytes]:
        return [self.recv() for _ in range(self._size)]

    def send_multipart(self, frames: Sequence[bytes], flags: int = 0) -> None:
        pass


@pytest.mark.parametrize(
    "frames", [(b"\x07", NOOP, OK), (b"\xc1",), (b"\x07", *[b""] * 5000)], ids=["3", "1", "5001"]
)
def test_deadlines_hold_while_a_peer_floods(
    frames: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with linked() as link:
            await settled(link)
            flood = Endless(*frames, guard=10_000_000)
            monkeypatch.setattr(link.client, "_socket", flood)
            with pytest.raises(NoAnswerError, match=r"no answer within 0\.05 s"):
                await link.client.call(Op.NOOP, timeout_ns=50 * NS_PER_MS)
            assert flood.taken > 200, "the flood was read meanwhile"
            monkeypatch.undo()
            link.client._frames = []

    run(main)


@pytest.mark.parametrize(
    "frames", [(b"\x07", NOOP, OK), (b"\x07", *[b""] * 5000)], ids=["3", "5001"]
)
def test_one_turn_of_the_loop_reads_so_much(
    frames: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with linked() as link:
            await settled(link)
            monkeypatch.setattr(link.client, "_socket", Endless(*frames))
            link.client._drain()
            monkeypatch.undo()
            link.client._frames = []

    run(main)


def test_one_turn_of_the_loop_reads_so_many_events(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with linked() as link:
            await settled(link)
            event = struct.pack("=hi", zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, 0)
            events = Endless(event, b"tcp://127.0.0.1:1")
            monkeypatch.setattr(link.client, "_monitor", events)
            link.client._drain_monitor()
            monkeypatch.undo()
            assert 2 <= events.taken < 1000

    run(main)


async def settled(link: Link) -> None:
    """Return once the client is connected and has nothing left to look at."""
    call = link.call(Op.NOOP)
    uid, op = await link.peer.receive()
    await link.peer.send(uid, op, OK)
    await call
    while link.client._look_due or not link.client.standing.greeted:  # noqa: ASYNC110 - nothing tells it
        await asyncio.sleep(0.001)


def test_the_frames_of_a_reply_are_bounded() -> None:
    async def main() -> None:
        async with linked() as link:
            call = link.call(Op.NOOP)
            await link.peer.receive()
            await link.peer.send(b"\x00", NOOP, *[OK] * 10_000)
            with pytest.raises(BadAnswerError, match=r"^NOOP: noop: the reply has over 8 frames"):
                await call
            again = link.call(Op.NOOP)
            await link.peer.receive()
            await link.peer.send(b"\x01", NOOP, OK)
            assert (await again).result == "OK"
            assert link.client._frames == []
            link.assert_idle()

    run(main)


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


def test_prompt_answers() -> None:
    async def main() -> None:
        async with prompt(lambda frames: [[frames[0], frames[1], OK]]) as (client, events):
            for _ in range(300):
                assert (await client.call(Op.NOOP)).result == "OK"
            for _ in range(20):
                replies = await asyncio.gather(*(client.call(Op.NOOP) for _ in range(20)))
                assert {reply.result for reply in replies} == {"OK"}
            assert events.empty()

    run(main)


def test_a_prompt_answer_behind_another_message_is_found() -> None:
    """Two messages announce themselves once; a look that takes one alone never sees the other."""

    def answer(frames: list[bytes]) -> list[list[bytes]]:
        return [[b"\x7f", NOOP, OK], [frames[0], frames[1], OK]]

    async def main() -> None:
        async with prompt(answer) as (client, events):
            for _ in range(100):
                assert (await client.call(Op.NOOP)).result == "OK"
                assert await events.get() == UnknownReply(uid=127)

    run(main)


def test_a_prompt_bad_answer() -> None:
    async def main() -> None:
        async with prompt(lambda frames: [[frames[0], PING, OK]]) as (client, events):
            for uid in range(20):
                with pytest.raises(BadAnswerError, match="is for operation 22"):
                    await client.call(Op.NOOP)
                event = await events.get()
                assert isinstance(event, MalformedReply)
                assert event.uid == uid

    run(main)

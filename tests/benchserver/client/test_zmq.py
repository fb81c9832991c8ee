"""Connections over ZMQ against a scripted ROUTER on loopback; frames are literal bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest
import zmq

from benchserver.client.connection import BadAnswerError, ConnectionLostError, NoAnswerError
from benchserver.client.zmq import ZmqConnector
from benchserver.clock import NS_PER_MS, VirtualClock
from benchserver.config.run import MAX_WORKERS
from protocol import codec
from protocol.dialects import V056
from protocol.errors import LocalProtocolError
from protocol.messages import (
    NO_UID,
    VOID,
    DuplicateReply,
    Event,
    Incoming,
    LateReply,
    MalformedReply,
)
from protocol.ops import Op
from protocol.session import MAX_PENDING
from tests.benchserver.client.connectionsuite import LAWS, Asked, Law, Link, keep, name_of
from tests.benchserver.client.zmqstage import (
    NOOP,
    OK,
    PING,
    Peer,
    connected,
    entries,
    linked,
)

pytestmark = pytest.mark.usefixtures("leak_free")


class LedPeer:
    """The peer of the suite: a ROUTER behind the codec."""

    def __init__(self) -> None:
        self._peer = Peer()
        self.port = self._peer.port
        self._requests: dict[int, Incoming] = {}

    async def asked(self) -> Asked:
        request = codec.decode_request(V056, await self._peer.receive())
        number = codec.unpack(request.uid, "uid")
        self._requests[number] = request
        return Asked(number, request.op, tuple(request.args))

    async def answer(self, asked: Asked, result: Any, *, bad: bool = False) -> None:
        request = self._requests[asked.number]
        reply = (request.uid, request.op_frame, b"\xc1")
        await self._peer.send(*(reply if bad else codec.encode_reply(V056, request, result)))

    async def answer_nothing(self) -> None:
        await self._peer.send(b"\x7f", NOOP, OK)

    def go(self) -> None:
        self._peer.close()

    def come_back(self) -> None:
        self._peer = Peer(port=self.port)


@pytest.mark.asyncio
@pytest.mark.parametrize("law", LAWS, ids=name_of)
@pytest.mark.usefixtures("never_late")
async def test_it_is_a_connection(law: Law) -> None:
    peer, events = LedPeer(), asyncio.Queue[Event]()
    url = f"tcp://127.0.0.1:{peer.port}"
    try:
        async with connected(url, events) as connection:
            link = Link(connection, peer, url, events, lambda: entries(connection))
            await keep(law, link)
    finally:
        peer.go()


@pytest.mark.asyncio
async def test_an_answer_ends_the_call() -> None:
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


@pytest.mark.asyncio
async def test_latency_is_from_sending_to_receiving_on_the_clock() -> None:
    clock = VirtualClock(1000)
    async with linked(clock=clock) as link:
        call = link.call(Op.NOOP)
        await link.peer.receive()
        await clock.sleep_ns(345)
        await link.peer.send(b"\x00", NOOP, OK)
        assert (await call).latency_ns == 345


@pytest.mark.asyncio
@pytest.mark.usefixtures("never_late")
async def test_no_answer_in_time_and_then_a_late_one() -> None:
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


@pytest.mark.asyncio
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
async def test_frames_that_name_no_call_are_told(frames: tuple[bytes, ...]) -> None:
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


@pytest.mark.asyncio
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
async def test_a_bad_answer_ends_its_call(frames: tuple[bytes, ...], reason: str) -> None:
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


@pytest.mark.asyncio
async def test_a_server_that_never_was_there_is_no_lost_connection() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
        async with connected(url, asyncio.Queue(), 50 * NS_PER_MS) as client:
            with pytest.raises(NoAnswerError):
                await client.call(Op.NOOP)
            assert client.standing.lost == 0


@pytest.mark.asyncio
async def test_a_peer_that_speaks_zmq_has_greeted() -> None:
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


@pytest.mark.asyncio
@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 100])
async def test_a_peer_that_does_not_speak_zmq_never_greets(said: bytes) -> None:
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


@pytest.mark.asyncio
async def test_waiting_calls_are_bounded() -> None:
    async with linked() as link:
        calls = [link.call(Op.NOOP) for _ in range(MAX_PENDING)]
        await link.peer.receive()
        with pytest.raises(LocalProtocolError, match="1024 requests are waiting"):
            await link.client.call(Op.NOOP)
        await link.client.close()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(error) for error in ended} == {ConnectionLostError}
        link.assert_idle()


def _has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


@pytest.mark.asyncio
@pytest.mark.skipif(not _has_ipv6(), reason="no IPv6 loopback")
async def test_an_ipv6_address_is_reached() -> None:
    peer = Peer("[::1]")
    async with connected(f"tcp://[::1]:{peer.port}", asyncio.Queue()) as client:
        call = asyncio.create_task(client.call(Op.NOOP))
        assert await peer.receive() == [b"\x00", NOOP]
        await peer.send(b"\x00", NOOP, OK)
        assert (await call).result == "OK"
    peer.close()


@pytest.mark.asyncio
async def test_the_frames_of_a_reply_are_bounded() -> None:
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


@pytest.mark.asyncio
async def test_a_run_may_have_as_many_connections_as_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By itself libzmq has 1023 sockets, and each connection takes three."""
    made: list[zmq.Context[Any]] = []

    class Noted(zmq.Context[Any]):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(zmq, "Context", Noted)
    connector = ZmqConnector("tcp://127.0.0.1:1", clock=VirtualClock(), timeout_ns=NS_PER_MS)
    assert [context.get(zmq.MAX_SOCKETS) >= 3 * MAX_WORKERS for context in made] == [True]
    await connector.close()

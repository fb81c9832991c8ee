"""Lanes: clients take turns, what waits is bounded, and who sends nonsense is named."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from benchserver.clock import VirtualClock
from benchserver.refserver.front import rpc
from benchserver.refserver.front.rpc import MAX_WAITING, RpcServer
from benchserver.refserver.front.zmq.router import Frames, LostReplyError, Take
from benchserver.refserver.journal import Journal
from benchserver.refserver.meter import Fate, Meter
from protocol import codec
from protocol.dialects import V056
from protocol.ops import Op

WITHIN_S = 20.0
MANY_TURNS = 100_000


class Wire:
    """A router without a socket."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.take: Take | None = None
        self.sent: list[bytes] = []
        self.reads = True

    async def watch_clients(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def receive(self, take: Take) -> None:
        self.take = take
        self.ready.set()
        await asyncio.get_running_loop().create_future()

    def send(self, client: bytes, frames: Frames) -> None:
        if not frames:
            raise LostReplyError("nobody is there")
        self.sent.append(client)

    async def until_read(self, _client: bytes) -> bool:
        return self.reads


@dataclass
class Stage:
    """A server of PINGs behind a wire."""

    wire: Wire
    server: RpcServer
    meter: Meter
    lines: list[str] = field(default_factory=list)
    pinged: list[int] = field(default_factory=list)

    def send(self, client: bytes, op: Op, *args: Any) -> None:
        assert self.wire.take is not None
        self.wire.take(client, list(codec.encode_request(V056, 1, op, args)))

    def fates(self) -> Counter[Fate]:
        found: Counter[Fate] = Counter()
        for (_, fate), count in self.meter.fates.items():
            found[fate] += count
        return found

    async def settled(self) -> None:
        for _ in range(MANY_TURNS):
            if not self.server._lanes:
                return
            await asyncio.sleep(0)
        raise AssertionError("lanes that do not end")


@pytest_asyncio.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    """Give a server that runs, behind a wire without a socket."""
    wire = Wire()
    monkeypatch.setattr(rpc, "Router", lambda _journal: wire)
    clock = VirtualClock()
    meter, lines, pinged = Meter(clock), list[str](), list[int]()

    async def ping(args: Sequence[Any]) -> Any:
        pinged.append(args[0])
        return True

    server = RpcServer(
        {Op.PING: ping}, dialect=V056, journal=Journal(clock, lines.append), meter=meter
    )
    running = asyncio.create_task(server.run())
    await asyncio.wait_for(wire.ready.wait(), WITHIN_S)
    yield Stage(wire, server, meter, lines, pinged)
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.asyncio
async def test_a_client_that_sends_much_lets_others_have_their_turn(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for _ in range(500):
        stage.send(b"greedy", Op.PING, 1)
    for _ in range(3):
        stage.send(b"modest", Op.PING, 2)
    await stage.settled()
    assert stage.pinged.count(1) == 500
    assert [turn for turn, who in enumerate(stage.pinged) if who == 2][-1] < 20


@pytest.mark.asyncio
async def test_what_waits_is_bounded_in_number_and_in_bytes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(MAX_WAITING + 5):
        stage.send(b"many", Op.PING, 1)
    monkeypatch.setattr(rpc, "MAX_WAITING_BYTES", 2500)
    for _ in range(3):
        stage.send(b"large", Op.END_SESSION, "x" * 1000)
    monkeypatch.setattr(rpc, "MAX_WAITING_BYTES", 1)
    stage.send(b"one", Op.PING, 3)
    await stage.settled()
    assert stage.pinged == [1, 3, *[1] * (MAX_WAITING - 1)]
    assert stage.fates()[Fate.DROPPED] == 5 + 1
    assert "a client has 1024 requests of 3072 B waiting; dropped: 1" in stage.lines[0]


@pytest.mark.asyncio
async def test_who_never_reads_is_not_answered(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.wire.reads = False
    for _ in range(3):
        stage.send(b"deaf", Op.PING, 1)
    await stage.settled()
    assert stage.pinged == []
    assert stage.fates() == {Fate.DROPPED: 3}
    assert "a client has read none of its replies for 60 s; dropped: 3" in stage.lines[0]
    stage.wire.reads = True
    stage.send(b"deaf", Op.PING, 1)
    await stage.settled()
    assert stage.pinged == [1]


@pytest.mark.asyncio
async def test_a_request_that_cannot_be_read_is_a_line_of_who_sent_it(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert stage.wire.take is not None
    stage.wire.take(b"\x00\xab", [b"\x01", b"\x01", b"?"])
    await stage.settled()
    [line] = stage.lines
    assert line.startswith("embedded server: refused: client 00ab: ")

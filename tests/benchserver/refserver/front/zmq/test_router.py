"""The ROUTER socket: long messages, many messages, and replies that nobody reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
import pytest_asyncio
import zmq
from zmq.utils.garbage import gc as uncopied

from benchserver.clock import VirtualClock
from benchserver.refserver.front.zmq import router as router_module
from benchserver.refserver.front.zmq.router import (
    KEPT_FRAMES,
    MAX_UNREAD_BYTES,
    LostReplyError,
    Router,
)
from benchserver.refserver.journal import Journal

WITHIN_S = 20.0
LARGE = bytes(1 << 20)


@contextmanager
def connected(router: Router, *options: tuple[int, int]) -> Iterator[zmq.Socket[bytes]]:
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    for name, value in options:
        socket.setsockopt(name, value)
    socket.connect(f"tcp://127.0.0.1:{router.bind('127.0.0.1', 0)}")
    try:
        yield socket
    finally:
        socket.close()
        context.term()


Taken = list[tuple[bytes, list[bytes]]]


async def taken_from(router: Router, count: int) -> Taken:
    """Receive until so many messages have come, and a turn of the loop after that."""
    taken: Taken = []
    enough = asyncio.Event()

    def take(client: bytes, frames: object) -> None:
        assert isinstance(frames, list)
        taken.append((client, [bytes(frame) for frame in frames]))
        if len(taken) >= count:
            enough.set()

    receiving = asyncio.create_task(router.receive(take))
    await asyncio.wait_for(enough.wait(), WITHIN_S)
    receiving.cancel()
    await asyncio.wait([receiving])
    return taken


def open_router() -> Router:
    return Router(Journal(VirtualClock(), lambda _line: None))


@pytest_asyncio.fixture
async def router() -> AsyncIterator[Router]:
    """Give a router that is closed when its test ends."""
    router = open_router()
    yield router
    router.close()


@pytest.mark.asyncio
async def test_of_a_long_message_the_first_frames_are_kept_and_the_next_one_is_whole(
    router: Router,
) -> None:
    with connected(router) as client:
        client.send_multipart([b"x"] * 50_000)
        client.send_multipart([b"uid", b"op"])
        [(_, long), (_, short)] = await taken_from(router, 2)
    assert long == [b"x"] * KEPT_FRAMES
    assert short == [b"uid", b"op"]


@pytest.mark.asyncio
async def test_a_turn_of_the_loop_takes_no_more_than_its_share(
    router: Router,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(router_module, "TURN_FRAMES", 30)

    seen: list[int] = []

    async def watch(taken: Taken) -> None:
        while True:
            seen.append(len(taken))
            await asyncio.sleep(0)

    with connected(router, (zmq.SNDHWM, 0)) as client:
        for _ in range(1000):
            client.send_multipart([b"a", b"b"])  # with its sender it has three frames
        taken: Taken = []
        enough = asyncio.Event()

        def take(sender: bytes, _frames: object) -> None:
            taken.append((sender, []))
            if len(taken) == 1000:
                enough.set()

        tasks = [asyncio.create_task(watch(taken)), asyncio.create_task(router.receive(take))]
        await asyncio.wait_for(enough.wait(), WITHIN_S)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    assert max(after - before for before, after in pairwise(seen)) <= 10


@pytest.mark.asyncio
async def test_who_leaves_replies_unread_gets_no_more_of_them_until_they_are_read(
    router: Router,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(router_module, "READ_WITHIN_S", 0.0)

    with connected(router, (zmq.RCVHWM, 1), (zmq.RCVBUF, 1 << 16)) as client:
        client.send(b"hello")
        [(name, _)] = await taken_from(router, 1)
        sent = 0
        while await router.until_read(name):
            router.send(name, (LARGE,))
            sent += 1
            assert sent < 200, "more than kernels hold, and no end"
        assert sent * len(LARGE) >= MAX_UNREAD_BYTES
        assert await router.until_read(b"another client")
        monkeypatch.setattr(router_module, "READ_WITHIN_S", WITHIN_S)
        waiting = asyncio.create_task(router.until_read(name))
        loop = asyncio.get_running_loop()
        for _ in range(sent):
            assert len(await loop.run_in_executor(None, client.recv)) == len(LARGE)
        assert await asyncio.wait_for(waiting, WITHIN_S)


@pytest.mark.asyncio
async def test_what_all_clients_leave_unread_has_a_limit_too(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_module, "READ_WITHIN_S", 0.0)
    monkeypatch.setattr(router_module, "MAX_UNREAD_IN_ALL", 1)

    with connected(router, (zmq.RCVHWM, 1), (zmq.RCVBUF, 1 << 16)) as client:
        client.send(b"hello")
        [(name, _)] = await taken_from(router, 1)
        while await router.until_read(name):
            router.send(name, (LARGE,))
        assert await router.until_read(b"one that has read everything")


async def send_for_ever(router: Router, name: bytes) -> None:
    while True:
        router.send(name, (b"",))
        await asyncio.sleep(0)


@pytest.mark.asyncio
async def test_a_large_reply_leaves_no_thread_behind() -> None:
    router = open_router()
    with connected(router) as client:
        client.send(b"hello")
        [(name, _)] = await taken_from(router, 1)
        router.send(name, (LARGE,))
        assert uncopied.is_alive()
        client.recv()
    router.close()
    assert not uncopied.is_alive()


@pytest.mark.asyncio
async def test_what_was_unread_is_forgotten_with_its_client(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(router, (zmq.RCVHWM, 1), (zmq.RCVBUF, 1 << 16)) as client:
        client.send(b"hello")
        [(name, _)] = await taken_from(router, 1)
        monkeypatch.setattr(router_module, "READ_WITHIN_S", 0.0)
        while await router.until_read(name):
            router.send(name, (LARGE,))
    monkeypatch.setattr(router_module, "READ_WITHIN_S", WITHIN_S)
    assert await asyncio.wait_for(router.until_read(name), WITHIN_S)
    with pytest.raises(LostReplyError):
        await send_for_ever(router, name)

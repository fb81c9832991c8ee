"""Who is too much for the ROUTER socket is turned away; who is there stays."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import pytest
import zmq

from benchserver.clock import VirtualClock
from benchserver.refserver.front.zmq.admission import Admission, client_limit
from benchserver.refserver.journal import Journal

WITHIN_S = 20.0
GREETING_BYTES = 64


@pytest.mark.parametrize(
    ("soft", "limit"), [(200, 100), (8, 8), (100_000, 4096), (resource.RLIM_INFINITY, 4096)]
)
def test_the_limit_is_a_share_of_the_descriptors(
    soft: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (soft, soft))
    assert client_limit() == limit


@contextmanager
def admitting(limit: int, lines: list[str]) -> Iterator[tuple[Admission, int]]:
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    admission = Admission(router, Journal(VirtualClock(), lines.append), limit)
    try:
        yield admission, router.bind_to_random_port("tcp://127.0.0.1")
    finally:
        admission.close()
        router.close(linger=0)
        context.term()


async def end_of(reader: asyncio.StreamReader) -> bool:
    """Tell whether a connection ended, once libzmq has greeted or closed it."""
    try:
        await reader.readexactly(GREETING_BYTES)
        await reader.readexactly(1)
    except (asyncio.IncompleteReadError, ConnectionError):
        return True
    return False


async def until(count: int, admission: Admission) -> None:
    for _ in range(2000):
        if admission.count == count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{admission.count} are connected, expected {count}")


@pytest.mark.asyncio
async def test_who_is_too_much_is_turned_away_and_a_place_that_is_free_is_given() -> None:
    lines: list[str] = []
    with admitting(2, lines) as (admission, port):
        watching = asyncio.create_task(admission.run(port))
        async with AsyncExitStack() as stack:

            async def knock() -> tuple[asyncio.Task[bool], asyncio.StreamWriter]:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                stack.callback(writer.close)
                return asyncio.create_task(end_of(reader)), writer

            guests = [await knock() for _ in range(2)]
            await until(2, admission)
            late = [await knock() for _ in range(5)]
            assert all(await asyncio.gather(*(ended for ended, _ in late)))
            await until(2, admission)
            guests[0][1].close()
            await until(1, admission)
            guests.append(await knock())
            await until(2, admission)
            assert [ended.done() for ended, _ in guests[1:]] == [False, False]
            for task in (watching, *(ended for ended, _ in guests)):
                task.cancel()
                await asyncio.wait([task])
    assert lines[0].startswith("embedded server: 2 clients are connected; turned away: ")

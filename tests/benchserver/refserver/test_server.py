"""The whole server: what keeps it from starting, what it leaves, what ends it, and many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from benchserver.clock import NS_PER_MS, NS_PER_S, VirtualClock
from benchserver.errors import FatalError
from benchserver.refserver import server as server_module
from benchserver.refserver.config import ServerConfig
from benchserver.refserver.fineclock import FineClock
from benchserver.refserver.server import serve
from protocol import httpapi
from protocol.ops import Op
from tests.httpstage import serving
from tests.serverstage import (
    CHUNK,
    CLASSICAL,
    DONE,
    L1_BYTES,
    Client,
    Pages,
    connected,
    http,
    infos,
    key,
    kv_pages,
    lookup,
    name,
    register,
    registration,
    retrieve,
    store,
)

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.asyncio
async def test_what_clients_left_open_ends_by_itself() -> None:
    clock = VirtualClock(by_hand=True)
    with kv_pages(CLASSICAL) as pages:
        async with (
            serving(shm_name=name(), clock=clock) as server,
            connected(server.rpc_port) as [client],
        ):

            async def status_when(done: Callable[[httpapi.ServerStatus], bool]) -> Any:
                while True:
                    answer = (await http(server.http_port, httpapi.STATUS_PATH))[1]
                    if done(httpapi.parse_status(answer)):
                        return answer["storage_manager"]["l1_manager"]

            await register(client, 1, pages, infos([0]))
            await client.call(Op.REGISTER_ENGINE_DRIVEN, registration(2))
            await client.call(Op.PING, 2)
            await client.call(Op.PREPARE_STORE, key("open"), 2)
            await clock.move_ns(121 * NS_PER_S)
            await status_when(lambda s: not s.engine_instances and s.write_locked == 0)
            await client.call(Op.REGISTER_ENGINE_DRIVEN, registration(3))
            await client.call(Op.PREPARE_STORE, key("open"), 3)
            await clock.move_ns(600 * NS_PER_S)
            l1 = await status_when(lambda s: s.active_sessions == 0 and s.write_locked == 0)
            while l1["memory_used_bytes"]:
                l1 = await status_when(lambda _: True)
            assert await client.call(Op.COMMIT_STORE, key("open"), 3, b"") is False
            await clock.move_ns(3601 * NS_PER_S)
            await status_when(lambda s: not s.handle_instances)
            assert any("fell silent" in line for line in server.lines)


@pytest.mark.asyncio
@pytest.mark.parametrize("taken", ["port", "http_port"])
async def test_a_taken_port_is_said_and_leaves_nothing(taken: str) -> None:
    async with serving() as other:
        port = other.rpc_port if taken == "port" else other.http_port
        fields: dict[str, Any] = {"shm_name": name(), taken: port}
        with pytest.raises(FatalError, match="cannot listen"):
            async with serving(**fields):
                pass


@pytest.mark.asyncio
async def test_cancelling_it_leaves_nothing_even_with_clients_registered() -> None:
    with kv_pages(CLASSICAL) as pages:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[int] = loop.create_future()
        config = ServerConfig(l1_bytes=L1_BYTES, chunk_size=CHUNK, shm_name=name())
        server = asyncio.create_task(
            serve(
                config,
                on_ready=lambda rpc, _: ready.set_result(rpc),
                stop=asyncio.Event(),
                journal=lambda _: None,
            )
        )
        async with connected(await ready) as [client]:
            await register(client, 1, pages, infos([0]))
            await store(client, key("s"), [[1, 2, 3, 4]])
            await client.call(Op.REGISTER_ENGINE_DRIVEN, registration(2))
            server.cancel()
            with pytest.raises(asyncio.CancelledError):
                await server


@pytest.mark.asyncio
async def test_a_failing_on_ready_ends_the_server() -> None:
    def fail(_rpc: int, _http: int) -> None:
        raise LookupError("not ready")

    config = ServerConfig(l1_bytes=L1_BYTES, shm_name=name())
    with pytest.raises(LookupError, match="not ready"):
        await serve(config, on_ready=fail, stop=asyncio.Event(), journal=lambda _: None)


@pytest.mark.asyncio
async def test_many_clients_at_once_never_get_wrong_bytes() -> None:
    """Stores, retrieves, evictions and forced clears side by side; what is answered True is."""

    async def work(client: Client, pages: Pages, instance: int) -> int:
        [tensor] = pages.tensors
        rng = np.random.default_rng(instance)
        right = 0
        for turn in range(25):
            tokens = [instance, turn, *([0] * (2 * CHUNK - 2))]
            wanted = key(f"{instance}-{turn}", token_ids=tokens)
            tensor[:, 1:5] = rng.integers(1, 2**16, size=tensor[:, 1:5].shape)
            tensor[:, 5:9] = 0
            assert await store(client, wanted, [[1, 2, 3, 4]], instance) == DONE
            if turn % 10 == 9:
                await client.call(Op.CLEAR, True)
            hits = await lookup(client, wanted.request_id, token_ids=tokens)
            taken = key(wanted.request_id, hits, token_ids=tokens)
            ids = [5, 6, 7, 8][: 2 * hits]
            if hits and await retrieve(client, taken, [ids], instance) == DONE:
                assert np.array_equal(tensor[:, ids], tensor[:, 1 : 1 + 2 * hits])
                right += 1
            await client.call(Op.END_SESSION, wanted.request_id)
        return right

    with ExitStack() as stack:
        count = 4
        all_pages = [stack.enter_context(kv_pages(CLASSICAL)) for _ in range(count)]
        async with (
            serving(l1_bytes=16 * 4096) as server,
            connected(server.rpc_port, count) as clients,
        ):
            for instance, client in enumerate(clients):
                await register(client, instance, all_pages[instance], infos([0]))
            works = zip(clients, all_pages, range(count), strict=True)
            right = await asyncio.gather(*(work(*parts) for parts in works))
            assert sum(right) > count
            status = (await http(server.http_port, httpapi.STATUS_PATH))[1]
            assert httpapi.parse_status(status).write_locked == 0


@pytest.mark.asyncio
async def test_what_the_event_loop_complains_of_is_a_line() -> None:
    lines: list[str] = []

    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def on_ready(*_: int) -> None:
        loop.call_exception_handler(
            {"message": "socket.accept() out of system resource", "exception": OSError("full")}
        )
        stop.set()

    before = loop.get_exception_handler()
    config = ServerConfig(l1_bytes=1 << 20)
    await serve(config, on_ready=on_ready, stop=stop, journal=lines.append)
    assert loop.get_exception_handler() is before
    assert lines == [
        "embedded server: event loop: socket.accept() out of system resource: OSError: full"
    ]


@pytest.mark.asyncio
async def test_a_fault_that_delays_uses_a_clock_finer_than_the_event_loops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept_ns: list[int] = []

    class Watched(FineClock):
        async def sleep_ns(self, duration_ns: int) -> None:
            slept_ns.append(duration_ns)
            await super().sleep_ns(duration_ns)

    monkeypatch.setattr(server_module, "FineClock", Watched)
    async with (
        serving(faults=("delay:op=GET_CHUNK_SIZE,delay=2ms",)) as server,
        connected(server.rpc_port) as [client],
    ):
        assert await client.call(Op.GET_CHUNK_SIZE) == CHUNK
    assert 2 * NS_PER_MS in slept_ns

"""The whole server over loopback sockets, with a client made of `protocol` alone."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import math
import mmap
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgpack
import numpy as np
import pytest
import zmq
import zmq.asyncio

from benchserver.clock import NS_PER_S
from benchserver.errors import FatalError
from benchserver.refserver.server import ServerConfig, serve
from benchserver.refserver.store.segments import create_segment, unlink_segment
from protocol import codec, httpapi
from protocol.dialects import V056, dialect_of, release_of
from protocol.handles import CPU_EVENT_STUB, CpuShmHandle, contiguous_strides
from protocol.inline.reading import decode_tensor_list
from protocol.inline.tensor import InlineTensor
from protocol.inline.writing import encode_tensor_list
from protocol.keys import CacheKey
from protocol.messages import VOID, Reply, RetrievePlan, StorePlan, TransferResult
from protocol.ops import Op
from protocol.session import ClientSession

CHUNK = 32
BS = 16
L1_BYTES = 1 << 20
ANSWER_S = 30.0
NONCE = f"rst{os.getpid()}"
_counter = itertools.count()
DONE = TransferResult(event=CPU_EVENT_STUB, ok=True)
FAILED = TransferResult(event=CPU_EVENT_STUB, ok=False)


def name() -> str:
    return f"{NONCE}-{next(_counter)}"


def residue() -> tuple[list[str], list[str], list[str], int]:
    """Segments, mappings and threads of ours, and how many descriptors are open."""
    segments = [path.name for path in Path("/dev/shm").iterdir() if NONCE in path.name]
    maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if NONCE in line]
    threads = [t.name for t in threading.enumerate() if t.name.startswith("refserver-")]
    return segments, maps, threads, len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = residue()
    yield
    after = residue()
    assert after[:3] == ([], [], [])
    assert after[3] <= before[3]


class HandClock:
    """A clock that a test moves; sleepers look at it again and again."""

    def __init__(self) -> None:
        self.time_ns = 0

    def now_ns(self) -> int:
        return self.time_ns

    async def sleep_ns(self, duration_ns: int) -> None:
        until_ns = self.time_ns + duration_ns
        while self.time_ns < until_ns:  # noqa: ASYNC110 - the test moves time by assignment
            await asyncio.sleep(0.001)


@dataclass(frozen=True)
class Running:
    rpc_port: int
    http_port: int
    lines: list[str]


@asynccontextmanager
async def serving(**fields: Any) -> AsyncIterator[Running]:
    """A server that is stopped, and must end cleanly, when the block ends."""
    ready: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
    stop, lines = asyncio.Event(), list[str]()
    clock = fields.pop("clock", None)
    config = ServerConfig(**{"l1_bytes": L1_BYTES, "chunk_size": CHUNK, **fields})
    server = asyncio.create_task(
        serve(
            config,
            on_ready=lambda rpc, http: ready.set_result((rpc, http)),
            stop=stop,
            clock=clock,
            journal=lines.append,
        )
    )
    waiting: list[asyncio.Future[Any]] = [ready, server]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if server.done():
        await server
    try:
        yield Running(*ready.result(), lines)
    finally:
        stop.set()
        await asyncio.wait_for(server, ANSWER_S)
        assert not [line for line in lines if "unexpected: " in line]


class Client:
    """One DEALER around a protocol session."""

    def __init__(self, context: zmq.asyncio.Context, port: int) -> None:
        self.session = ClientSession(V056)
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(f"tcp://127.0.0.1:{port}")

    async def call(self, op: Op, *args: Any) -> Any:
        [result] = await self.calls([(op, args)])
        return result

    async def calls(self, requests: Sequence[tuple[Op, Sequence[Any]]]) -> list[Any]:
        """Send all, then return the results in the order in which they come."""
        for op, args in requests:
            now_ns = time.monotonic_ns()
            out = self.session.request(op, args, now_ns=now_ns)
            await self.socket.send_multipart(out.frames)
        results = []
        for _ in requests:
            frames = await self.receive()
            event = self.session.receive(frames, now_ns=time.monotonic_ns())
            assert isinstance(event, Reply), event
            results.append(event.result)
        return results

    async def receive(self) -> Sequence[bytes]:
        async def frames() -> Sequence[bytes]:
            return await self.socket.recv_multipart()

        return await asyncio.wait_for(frames(), ANSWER_S)

    async def raw(self, *frames: bytes) -> None:
        await self.socket.send_multipart(frames)

    async def is_silent(self, op: Op, *args: Any) -> bool:
        """Whether a request gets no reply; the NOOP behind it, on the same lane, gets one."""
        now_ns = time.monotonic_ns()
        out = self.session.request(op, args, now_ns=now_ns)
        self.session.abandon(out.uid, now_ns=now_ns)
        await self.socket.send_multipart(out.frames)
        return bool(await self.call(Op.NOOP) == "OK")


@asynccontextmanager
async def connected(port: int, count: int = 1) -> AsyncIterator[list[Client]]:
    context = zmq.asyncio.Context()
    clients = [Client(context, port) for _ in range(count)]
    try:
        yield clients
    finally:
        for client in clients:
            client.socket.close()
        context.term()


async def http(port: int, path: str, body: Any = None) -> tuple[int, Any]:
    method = "GET" if body is None else "POST"
    data = body if isinstance(body, bytes) else None
    json = None if isinstance(body, bytes) else body
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"http://127.0.0.1:{port}{path}", json=json, data=data) as response,
    ):
        return response.status, await response.json()


@dataclass(slots=True)
class Pages:
    """A client's tensors, all in one segment, one behind the other."""

    handles: list[CpuShmHandle] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)


@contextmanager
def kv_pages(*shapes: tuple[int, ...]) -> Iterator[Pages]:
    segment = name()
    nbytes = 2 * sum(math.prod(shape) for shape in shapes)
    descriptor = create_segment(segment)
    os.truncate(descriptor, nbytes)
    memory = mmap.mmap(descriptor, nbytes)
    os.close(descriptor)
    whole = np.frombuffer(memory, dtype=np.uint16)
    whole[:] = np.frombuffer(np.random.default_rng(1).bytes(nbytes), dtype=np.uint16)
    pages, offset = Pages(), 0
    for shape in shapes:
        size = math.prod(shape)
        handle = CpuShmHandle(
            shm_name=f"/{segment}",
            nbytes=nbytes,
            dtype="float16",
            shape=shape,
            stride=contiguous_strides(shape),
            storage_offset=offset,
        )
        pages.handles.append(handle)
        pages.tensors.append(whole[offset : offset + size].reshape(shape))
        offset += size
    try:
        yield pages
    finally:
        unlink_segment(segment)
        pages.tensors.clear()
        del whole
        with suppress(BufferError):  # a test still names a tensor: unmapped when that is gone
            memory.close()


CLASSICAL = (2, 16, BS, 2, 3)
MLA = (16, BS, 5)


def key(request_id: str, chunks: int = 2, **fields: Any) -> CacheKey:
    defaults: dict[str, Any] = {
        "model_name": "m",
        "world_size": 1,
        "worker_id": 0,
        "token_ids": list(range(chunks * CHUNK)),
        "start": 0,
        "end": chunks * CHUNK,
        "request_id": request_id,
    }
    return CacheKey(**{**defaults, **fields})


def infos(*groups: list[int]) -> list[dict[str, Any]]:
    return [
        {"engine_group_id": 0, "layer_indices": layers, "tokens_per_block": BS} for layers in groups
    ]


async def register(
    client: Client, instance: int, pages: Pages, groups: list[dict[str, Any]], world_size: int = 1
) -> None:
    args = (instance, pages.handles, "m", world_size, "vllm", {"kv_layout": "NHD"}, groups)
    assert await client.call(Op.REGISTER_KV_CACHE, *args) is VOID


async def lookup(client: Client, request_id: str, chunks: int = 2, **fields: Any) -> int:
    wanted = key(request_id, chunks, **{"worker_id": None, **fields})
    assert await client.call(Op.LOOKUP, wanted, 1) is VOID
    hits: int = await client.call(Op.QUERY_PREFETCH_STATUS, request_id)
    return hits


async def store(client: Client, wanted: CacheKey, ids: list[list[int]], instance: int = 1) -> Any:
    return await client.call(Op.STORE, wanted, instance, ids, CPU_EVENT_STUB)


async def retrieve(
    client: Client, wanted: CacheKey, ids: list[list[int]], instance: int = 1, skip: int = 0
) -> Any:
    return await client.call(Op.RETRIEVE, wanted, instance, ids, CPU_EVENT_STUB, skip)


def local_digests(pages: Pages, ids: list[int], blocks_per_chunk: int) -> list[str]:
    digests = []
    for first in range(0, len(ids), blocks_per_chunk):
        md5 = hashlib.md5()
        for tensor in pages.tensors:
            axis = 1 if tensor.ndim == 5 else 0
            md5.update(tensor.take(ids[first : first + blocks_per_chunk], axis).tobytes())
        digests.append(md5.hexdigest())
    return digests


@pytest.mark.asyncio
async def test_store_lookup_retrieve_and_digests_with_two_groups() -> None:
    with kv_pages(MLA, CLASSICAL) as pages:
        async with serving() as server, connected(server.rpc_port) as [client]:
            await register(client, 1, pages, infos([0], [1]))
            assert await client.call(Op.GET_CHUNK_SIZE) == CHUNK
            source, target = [1, 2, 3, 4], [9, 12, 7, 5]
            assert await lookup(client, "cold") == 0
            assert await store(client, key("cold"), [source, source]) == DONE
            assert await client.call(Op.END_SESSION, "cold") is VOID
            want = local_digests(pages, source, 2)
            assert local_digests(pages, target, 2) != want
            kept = [tensor.copy() for tensor in pages.tensors]
            assert await lookup(client, "warm") == 2
            assert await retrieve(client, key("warm"), [target, target]) == DONE
            assert local_digests(pages, target, 2) == want
            for tensor, old in zip(pages.tensors, kept, strict=True):
                axis = 1 if tensor.ndim == 5 else 0
                others = [block for block in range(16) if block not in target]
                assert np.array_equal(tensor.take(others, axis), old.take(others, axis))
            body = httpapi.checksums_body(block_ids=target, blocks_per_chunk=2, instance_id=1)
            status, answer = await http(server.http_port, httpapi.CHECKSUMS_PATH, body)
            assert status == 200
            assert list(httpapi.parse_checksums(answer, chunks=2)) == want
            assert await client.call(Op.END_SESSION, "warm") is VOID
            assert await client.call(Op.UNREGISTER_KV_CACHE, 1) is VOID
            status, answer = await http(server.http_port, httpapi.STATUS_PATH)
            found = httpapi.parse_status(answer)
            assert (found.chunk_size, found.active_sessions) == (CHUNK, 0)
            assert (found.read_locked, found.write_locked) == (0, 0)
            assert found.handle_instances == frozenset()
            # Two chunks, and of each an object for each group.
            assert answer["storage_manager"]["l1_manager"]["total_object_count"] == 4


@pytest.mark.asyncio
async def test_two_ranks_hit_together() -> None:
    async def main(pages: list[Pages]) -> None:
        async with serving() as server, connected(server.rpc_port, 2) as clients:
            for rank, client in enumerate(clients):
                await register(client, rank, pages[rank], infos([0]), world_size=2)
            keys = [key("r", 1, world_size=2, worker_id=rank) for rank in range(2)]
            assert await store(clients[0], keys[0], [[1, 2]], 0) == DONE
            assert await lookup(clients[0], "a", 1, world_size=2) == 0
            assert await lookup(clients[0], "b", 1, world_size=2, worker_id=0) == 1
            assert await store(clients[1], keys[1], [[1, 2]], 1) == DONE
            assert await lookup(clients[0], "c", 1, world_size=2) == 1
            for rank, client in enumerate(clients):
                assert await retrieve(client, keys[rank], [[5, 6]], rank) == DONE
                tensor = pages[rank].tensors[0]
                assert np.array_equal(tensor[:, [5, 6]], tensor[:, [1, 2]])

    with kv_pages(CLASSICAL) as first, kv_pages(CLASSICAL) as second:
        second.tensors[0][:] += 1
        await main([first, second])


@pytest.mark.asyncio
async def test_locks_as_the_real_server_keeps_them() -> None:
    with kv_pages(CLASSICAL) as pages:
        async with serving() as server, connected(server.rpc_port) as [client]:
            await register(client, 1, pages, infos([0]))
            assert await store(client, key("s"), [[1, 2, 3, 4]]) == DONE
            assert await retrieve(client, key("none"), [[5, 6, 7, 8]]) == FAILED
            assert await lookup(client, "two", num_kv_readers=2) == 2
            assert await retrieve(client, key("other"), [[5, 6, 7, 8]]) == DONE
            assert await retrieve(client, key("two"), [[5, 6, 7, 8]]) == DONE
            assert await retrieve(client, key("two"), [[5, 6, 7, 8]]) == FAILED
            assert await lookup(client, "free") == 2
            free = key("free", worker_id=None)
            assert await client.call(Op.FREE_LOOKUP_LOCKS, free, 1) is VOID
            assert await retrieve(client, key("free"), [[5, 6, 7, 8]]) == FAILED
            # A lookup that was not asked for is freed too; without a lookup, nothing is.
            assert await client.call(Op.LOOKUP, key("quiet", worker_id=None), 1) is VOID
            assert await client.call(Op.FREE_LOOKUP_LOCKS, key("quiet", worker_id=None), 1) is VOID
            assert await client.call(Op.QUERY_PREFETCH_STATUS, "quiet") == 0
            assert await lookup(client, "kept") == 2
            assert await client.call(Op.FREE_LOOKUP_LOCKS, key("new", worker_id=None), 1) is VOID
            assert await client.call(Op.END_SESSION, "kept") is VOID
            assert await client.call(Op.CLEAR, False) is VOID
            assert await lookup(client, "still") == 2
            assert await client.call(Op.CLEAR, True) is VOID
            assert await lookup(client, "gone") == 0


@pytest.mark.asyncio
async def test_a_result_is_consumed_once_and_unknown_ids_give_zero() -> None:
    with kv_pages(CLASSICAL) as pages:
        async with serving() as server, connected(server.rpc_port) as [client]:
            await register(client, 1, pages, infos([0]))
            await store(client, key("s"), [[1, 2, 3, 4]])
            assert await client.call(Op.LOOKUP, key("r", worker_id=None), 1) is VOID
            assert await client.call(Op.WAIT_PREFETCH_STATUS, "r", 1.0) == 2
            assert await client.call(Op.QUERY_PREFETCH_STATUS, "r") == 0
            assert await client.call(Op.WAIT_PREFETCH_STATUS, "never", 1.0) == 0
            assert await lookup(client, "other", model_name="unregistered") == 0
            assert await lookup(client, "salted", cache_salt="s") == 0
            assert await lookup(client, "short", end=CHUNK) == 1
            assert await lookup(client, "negative", end=-5) == 0


@pytest.mark.asyncio
async def test_block_ids_null_blocks_and_skipped_tokens() -> None:
    with kv_pages(CLASSICAL) as pages:
        async with serving() as server, connected(server.rpc_port) as [client]:
            await register(client, 1, pages, infos([0]))
            [tensor] = pages.tensors
            assert await store(client, key("few"), [[1, 2, 3]]) == FAILED
            assert await store(client, key("range"), [[1, 2, 3, 16]]) == FAILED
            assert await store(client, key("range"), [[1, 2, 3, -1]]) == FAILED
            assert await client.is_silent(Op.STORE, key("lists"), 1, [[1, 2], [3, 4]], b"")
            assert await client.is_silent(Op.STORE, key("odd"), 1, [[1, 2, 3, 4, 5]], b"")
            assert await lookup(client, "l1") == 0
            # The second chunk is all null blocks; the first merely has one.
            assert await store(client, key("null"), [[0, 2, 0, 0]]) == DONE
            assert await lookup(client, "l2") == 1
            assert await store(client, key("all"), [[0, 2, 3, 4]]) == DONE
            assert await retrieve(client, key("l2", 1), [[9, 99]]) == FAILED
            assert await lookup(client, "l3") == 2
            assert await retrieve(client, key("l3"), [[5, 6, 7]]) == FAILED
            old = tensor.copy()
            assert await retrieve(client, key("l3"), [[5, 6, 7, 8]], skip=2 * BS + 5) == DONE
            assert np.array_equal(tensor[:, [5, 6]], old[:, [5, 6]])
            assert np.array_equal(tensor[:, [7, 8]], old[:, [3, 4]])
            assert await store(client, key("empty", start=CHUNK, end=CHUNK), [[]]) == DONE


@pytest.mark.asyncio
async def test_a_store_without_room_says_true_and_stores_nothing() -> None:
    with kv_pages(CLASSICAL) as pages:
        async with serving(l1_bytes=4096) as server, connected(server.rpc_port) as [client]:
            await register(client, 1, pages, infos([0]))
            assert await store(client, key("big"), [[1, 2, 3, 4]]) == DONE
            assert await lookup(client, "l") == 0
            assert any("no room" in line for line in server.lines)
            assert await store(client, key("small", 1), [[1, 2]]) == DONE
            assert await lookup(client, "l2") == 1


@pytest.mark.asyncio
async def test_registrations_are_kept_and_transfers_of_unknown_instances_fail() -> None:
    with kv_pages(CLASSICAL) as first, kv_pages(CLASSICAL) as second:
        second.tensors[0][:] += 1
        async with serving() as server, connected(server.rpc_port) as [client]:
            await register(client, 1, first, infos([0]))
            await register(client, 1, second, infos([0]))
            body = httpapi.checksums_body(block_ids=[1], blocks_per_chunk=1, instance_id=1)
            _, answer = await http(server.http_port, httpapi.CHECKSUMS_PATH, body)
            assert answer["chunk_checksums"] == local_digests(first, [1], 1)
            unknown = TransferResult(event=b"", ok=False)
            assert await store(client, key("s", 1), [[1, 2]], instance=9) == unknown
            assert await store(client, key("s", 1), [[1, 2]]) == DONE
            assert await lookup(client, "l", 1) == 1
            assert await retrieve(client, key("l", 1), [[1, 2]], instance=9) == unknown
            assert await retrieve(client, key("l", 1), [[1, 2]]) == FAILED
            assert await client.call(Op.PING, 1) is True
            assert await client.call(Op.PING, None) is True
            assert await client.call(Op.UNREGISTER_KV_CACHE, 9) is VOID


@pytest.mark.asyncio
async def test_bad_registrations_and_keys_get_no_reply() -> None:
    with kv_pages(CLASSICAL) as pages:
        async with serving() as server, connected(server.rpc_port) as [client]:
            [good] = pages.handles

            async def refused(handle: CpuShmHandle, world_size: int = 1) -> bool:
                args: tuple[Any, ...] = (1, [handle], "m", world_size, "vllm", {}, [])
                return await client.is_silent(Op.REGISTER_KV_CACHE, *args)

            def changed(**fields: Any) -> CpuShmHandle:
                names = ("shm_name", "nbytes", "dtype", "shape", "stride")
                return CpuShmHandle(**{**{n: getattr(good, n) for n in names}, **fields})

            assert await refused(changed(shm_name=f"/{NONCE}-none"))
            assert await refused(changed(shm_name="a/b"))
            assert await refused(changed(shm_name="a\0b"))
            assert await refused(changed(shm_name=""))
            assert await refused(changed(shm_name="x" * 300))
            assert await refused(changed(nbytes=good.nbytes + 1))
            assert await refused(changed(shape=(2, 2**40, BS, 2, 3), stride=(0, 0, 0, 0, 0)))
            assert await refused(good, world_size=0)
            assert await refused(good, world_size=2**60)
            await register(client, 1, pages, infos([0]))
            ids = [[1, 2, 3, 4]]
            for wanted in (
                key("a", worker_id=None),
                key("b", start=1),
                key("c", end=CHUNK + 1),
                key("d", end=3 * CHUNK),
                key("e", start=-CHUNK),
            ):
                assert await client.is_silent(Op.STORE, wanted, 1, ids, b"")
            assert len(server.lines) == 14
            told = [line for line in server.lines if "REGISTER_KV_CACHE of instance 1: " in line]
            assert len(told) == 9
            assert all(line.endswith("so the client waits until its own timeout") for line in told)


@pytest.mark.asyncio
async def test_reports_of_block_allocations_are_answered() -> None:
    good = {"req_id": "r", "new_block_ids": [1, 2], "new_token_ids": [5, 6, 7]}
    bad: list[dict[str, Any]] = [
        {},
        {**good, "req_id": 1},
        {**good, "new_block_ids": ["1"]},
        {**good, "new_token_ids": None},
        {name: value for name, value in good.items() if name != "new_block_ids"},
    ]

    async with serving() as server, connected(server.rpc_port) as [client]:
        for records in ([], [good], [good, good]):
            assert await client.call(Op.REPORT_BLOCK_ALLOCATION, 1, "m", records) is VOID
        for record in bad:
            assert await client.is_silent(Op.REPORT_BLOCK_ALLOCATION, 1, "m", [good, record])
        assert len(server.lines) == len(bad)
        assert all("a block allocation is" in line for line in server.lines)


HIDDEN = 6
OBJECT_SHAPE = (2, 2, CHUNK, HIDDEN)
OBJECT_BYTES = 2 * math.prod(OBJECT_SHAPE)


def registration(instance: int = 1, **fields: Any) -> dict[str, Any]:
    defaults = {
        "instance_id": instance,
        "model_name": "m",
        "world_size": 1,
        "block_size": BS,
        "num_layers": 2,
        "hidden_dim_size": HIDDEN,
        "dtype_str": "float16",
        "use_mla": False,
        "num_physical_slots": CHUNK,
    }
    return {**defaults, **fields}


def chunk_bytes(seed: int) -> bytes:
    return np.random.default_rng(seed).bytes(OBJECT_BYTES)


@pytest.mark.asyncio
async def test_engine_driven_through_the_pool() -> None:
    pool_name = name()

    async def exchange(client: Client, pool: int) -> None:
        assert await client.call(Op.COMMIT_STORE, key("s"), 1, b"") is False
        plan: StorePlan = await client.call(Op.PREPARE_STORE, key("s", 1), 1)
        assert (plan.inline, plan.chunk_indices) == (False, (0,))
        os.pwrite(pool, chunk_bytes(0), plan.slots[0].offset)
        assert await lookup(client, "early") == 0
        # The request id is no part of what joins PREPARE and COMMIT.
        assert await client.call(Op.COMMIT_STORE, key("t", 1), 1, b"") is True
        plan = await client.call(Op.PREPARE_STORE, key("u"), 1)
        [slot] = plan.slots
        assert plan.chunk_indices == (1,)
        assert (slot.length, slot.shape, slot.dtype) == (OBJECT_BYTES, OBJECT_SHAPE, "float16")
        assert slot.offset % 4096 == 0
        os.pwrite(pool, chunk_bytes(1), slot.offset)
        assert await client.call(Op.COMMIT_STORE, key("u"), 1, b"") is True
        assert (await client.call(Op.PREPARE_STORE, key("v"), 1)).slots == ()
        none = RetrievePlan(success=False, data=b"", slots=())
        assert await client.call(Op.PREPARE_RETRIEVE, key("w"), 1) == none
        assert await client.call(Op.COMMIT_RETRIEVE, key("w"), 1) is True
        assert await lookup(client, "w") == 2
        got: RetrievePlan = await client.call(Op.PREPARE_RETRIEVE, key("w"), 1)
        read = [os.pread(pool, slot.length, slot.offset) for slot in got.slots]
        assert (got.success, read) == (True, [chunk_bytes(0), chunk_bytes(1)])
        assert await client.call(Op.CLEAR, False) is VOID
        assert await client.call(Op.COMMIT_RETRIEVE, key("w"), 1) is True
        assert await lookup(client, "x") == 2
        # An inline COMMIT_STORE is honoured beside a pool.
        other = {"token_ids": [7] * CHUNK}
        inline = encode_tensor_list([InlineTensor("float16", OBJECT_SHAPE, chunk_bytes(2))])
        assert await client.call(Op.COMMIT_STORE, key("y", 1, **other), 1, inline) is True
        assert await lookup(client, "y", 1, **other) == 1

    async with (
        serving(transfer_mode="engine_driven", shm_name=pool_name) as server,
        connected(server.rpc_port) as [client],
    ):
        pool = await client.call(Op.REGISTER_ENGINE_DRIVEN, registration())
        assert (pool.shm_name, pool.pool_bytes) == (f"lmcache_l1_pool_{pool_name}", L1_BYTES)
        descriptor = os.open(f"/dev/shm/{pool.shm_name}", os.O_RDWR)
        try:
            await exchange(client, descriptor)
        finally:
            os.close(descriptor)
        answer = (await http(server.http_port, httpapi.STATUS_PATH))[1]
        assert httpapi.parse_status(answer).engine_instances == {1}
        assert await client.call(Op.UNREGISTER_ENGINE_DRIVEN, 1) is VOID
        assert await client.is_silent(Op.PREPARE_STORE, key("s"), 1)


@pytest.mark.asyncio
async def test_what_an_instance_prepared_ends_with_it() -> None:
    async with (
        serving(shm_name=name()) as server,
        connected(server.rpc_port) as [client],
    ):
        for instance in (1, 2):
            await client.call(Op.REGISTER_ENGINE_DRIVEN, registration(instance))
        await client.call(Op.PREPARE_STORE, key("s"), 1)
        await client.call(Op.UNREGISTER_ENGINE_DRIVEN, 1)
        answer = (await http(server.http_port, httpapi.STATUS_PATH))[1]
        assert answer["storage_manager"]["l1_manager"]["memory_used_bytes"] == 0
        plan: StorePlan = await client.call(Op.PREPARE_STORE, key("s"), 2)
        assert plan.chunk_indices == (0, 1)


@pytest.mark.asyncio
async def test_engine_driven_inline() -> None:
    async with (
        serving(transfer_mode="engine_driven") as server,
        connected(server.rpc_port) as [client],
    ):
        pool = await client.call(Op.REGISTER_ENGINE_DRIVEN, registration())
        assert (pool.shm_name, pool.pool_bytes) == ("", 0)
        assert (await client.call(Op.PREPARE_STORE, key("s"), 1)).inline
        chunks = [InlineTensor("float16", OBJECT_SHAPE, chunk_bytes(n)) for n in (0, 1)]
        wrong = InlineTensor("float16", OBJECT_SHAPE[::-1], chunk_bytes(0))
        for bad in ([wrong, chunks[1]], chunks[:1]):
            data = encode_tensor_list(bad)
            assert await client.call(Op.COMMIT_STORE, key("s"), 1, data) is False
        for garbage in (b"", b"garbage", b"\x80\x04]."[:3]):
            assert await client.is_silent(Op.COMMIT_STORE, key("s"), 1, garbage)
        assert await lookup(client, "l") == 0
        data = encode_tensor_list(chunks)
        assert await client.call(Op.COMMIT_STORE, key("s"), 1, data) is True
        assert await lookup(client, "m") == 2
        got: RetrievePlan = await client.call(Op.PREPARE_RETRIEVE, key("m"), 1)
        assert [bytes(t.data) for t in decode_tensor_list(got.data)] == [
            chunk_bytes(0),
            chunk_bytes(1),
        ]
        assert await client.call(Op.COMMIT_RETRIEVE, key("m"), 1) is True
        assert not (await client.call(Op.PREPARE_RETRIEVE, key("m"), 1)).success


@pytest.mark.asyncio
async def test_large_inline_chunks_come_back_as_they_were() -> None:
    """Messages of a MiB and more are not copied when they are received."""
    shape = (2, 2, CHUNK, 8192)
    chunk = InlineTensor("float16", shape, np.random.default_rng(1).bytes(2 * math.prod(shape)))
    data = encode_tensor_list([chunk, chunk])

    async with serving(l1_bytes=8 << 20) as server, connected(server.rpc_port) as [client]:
        assert len(data) > 2 * codec.LARGE_BYTES
        await client.call(Op.REGISTER_ENGINE_DRIVEN, registration(hidden_dim_size=8192))
        assert await client.call(Op.COMMIT_STORE, key("s"), 1, data) is True
        for request in ("a", "b"):
            assert await lookup(client, request) == 2
            got = await client.call(Op.PREPARE_RETRIEVE, key(request), 1)
            assert decode_tensor_list(got.data) == [chunk, chunk]


@pytest.mark.asyncio
async def test_the_same_object_in_both_modes() -> None:
    """What STORE gathers is what an engine-driven client reads."""

    with kv_pages(CLASSICAL, CLASSICAL) as pages:
        async with serving() as server, connected(server.rpc_port) as [client]:
            await register(client, 1, pages, infos([0, 1]))
            await client.call(Op.REGISTER_ENGINE_DRIVEN, registration(2))
            assert await store(client, key("s", 1), [[3, 1]]) == DONE
            assert await lookup(client, "l", 1) == 1
            got: RetrievePlan = await client.call(Op.PREPARE_RETRIEVE, key("l", 1), 2)
            [tensor] = decode_tensor_list(got.data)
            want = np.stack([t[:, [3, 1]].reshape(2, CHUNK, HIDDEN) for t in pages.tensors], 1)
            assert bytes(tensor.data) == want.tobytes()
            # Another layout under the same key is no reason to fall over.
            small = registration(3, hidden_dim_size=1)
            await client.call(Op.REGISTER_ENGINE_DRIVEN, small)
            assert await lookup(client, "m", 1) == 1
            assert not (await client.call(Op.PREPARE_RETRIEVE, key("m", 1), 3)).success
            status = (await http(server.http_port, httpapi.STATUS_PATH))[1]
            assert httpapi.parse_status(status).read_locked == 0


@pytest.mark.asyncio
async def test_what_clients_left_open_ends_by_itself() -> None:
    async def main(pages: Pages) -> None:
        clock = HandClock()
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
            clock.time_ns += 121 * NS_PER_S
            await status_when(lambda s: not s.engine_instances and s.write_locked == 0)
            await client.call(Op.REGISTER_ENGINE_DRIVEN, registration(3))
            await client.call(Op.PREPARE_STORE, key("open"), 3)
            clock.time_ns += 600 * NS_PER_S
            l1 = await status_when(lambda s: s.active_sessions == 0 and s.write_locked == 0)
            while l1["memory_used_bytes"]:
                l1 = await status_when(lambda _: True)
            assert await client.call(Op.COMMIT_STORE, key("open"), 3, b"") is False
            clock.time_ns += 3601 * NS_PER_S
            await status_when(lambda s: not s.handle_instances)
            assert any("fell silent" in line for line in server.lines)

    with kv_pages(CLASSICAL) as pages:
        await asyncio.wait_for(main(pages), 30)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("mode", "op", "args"),
    [
        ("engine_driven", Op.UNREGISTER_KV_CACHE, (1,)),
        ("engine_driven", Op.STORE, (key("s"), 1, [[1]], b"")),
        ("lmcache_driven", Op.REGISTER_ENGINE_DRIVEN, (registration(),)),
        ("lmcache_driven", Op.PREPARE_STORE, (key("s"), 1)),
    ],
)
async def test_operations_of_the_other_mode_get_no_reply(mode: str, op: Op, args: Any) -> None:
    async with (
        serving(transfer_mode=mode) as server,
        connected(server.rpc_port) as [client],
    ):
        assert await client.is_silent(op, *args)


@pytest.mark.asyncio
async def test_malformed_messages_do_not_end_it() -> None:
    pack = msgpack.packb
    deep = b"\x91" * 5000 + b"\xc0"
    messages: list[tuple[bytes, ...]] = [
        (b"",),
        (b"uid",),
        (b"", b"", b"", b""),
        (b"uid", pack(24), b"extra"),
        (b"uid", pack(9999)),
        (b"uid", pack("nonsense")),
        (b"uid", b"\xc1"),
        (b"uid", pack(24) + b"\0"),
        (b"uid", deep),
        (b"u" * 10_000, pack(24)),
        (b"uid", pack(8), deep, pack(1)),
        (b"uid", pack(8), pack({"model_name": "m"}), pack(1)),
        (b"uid", pack(14), pack({})),
        (b"uid", pack(1), *[pack([])] * 7),
        (b"uid", pack(20)),
        tuple([b"x"] * 100),
    ]

    async with serving() as server, connected(server.rpc_port) as [client]:
        for frames in messages:
            await client.raw(*frames)
        assert await client.call(Op.NOOP) == "OK"
        assert 0 < len(server.lines) <= len(messages)
        assert all("refused" in line for line in server.lines)
        # The op's name works too, and uid and op come back as they were.
        await client.raw(b"\xc1 any", pack("noop"))
        assert list(await client.receive()) == [b"\xc1 any", pack("noop"), pack("OK")]


@pytest.mark.asyncio
async def test_a_client_that_leaves_or_floods_does_not_disturb_others() -> None:
    async with serving() as server, connected(server.rpc_port, 2) as [first, second]:
        results = await first.calls([(Op.NOOP, ()), (Op.PING, (None,))] * 300)
        assert results == ["OK", True] * 300
        async with connected(server.rpc_port) as [gone]:
            now_ns = time.monotonic_ns()
            out = gone.session.request(Op.NOOP, (), now_ns=now_ns)
            await gone.socket.send_multipart(out.frames)
        assert await second.call(Op.NOOP) == "OK"


@pytest.mark.asyncio
async def test_http_answers() -> None:
    with kv_pages(CLASSICAL) as pages:
        async with serving(shm_name=name()) as server, connected(server.rpc_port) as [client]:
            port = server.http_port
            await register(client, 1, pages, infos([0]))
            assert (await http(port, "/"))[1]["status"] == "ok"
            assert await http(port, httpapi.HEALTH_PATH) == (200, {"status": "healthy"})
            version = httpapi.parse_version((await http(port, httpapi.VERSION_PATH))[1])
            assert dialect_of(release_of(version)) is V056
            config = (await http(port, httpapi.CONFIG_PATH))[1]
            assert httpapi.parse_transfer_mode(config) == "auto"
            assert (config["mp"]["chunk_size"], config["mp"]["null_block_id"]) == (CHUNK, 0)
            status = (await http(port, httpapi.STATUS_PATH))[1]
            assert httpapi.parse_status(status).handle_instances == {1}
            layout = status["cache_context_meta"]["1"]["kv_cache_layout"]
            assert (layout["num_layers"], layout["num_blocks"]) == (1, 16)
            assert layout["kernel_groups"][0]["slots_per_block"] == BS
            assert await http(port, httpapi.CLEAR_PATH, {"force": True}) == (
                200,
                {"status": "ok", "cleared": {"tier": "l1"}},
            )
            assert (await http(port, httpapi.CLEAR_PATH, b""))[0] == 200
            assert (await http(port, httpapi.CLEAR_PATH, {"tier": "l2"}))[0] == 400
            assert (await http(port, httpapi.CLEAR_PATH, {"force": 1}))[0] == 422
            assert (await http(port, "/nowhere"))[0] == 404
            good = httpapi.checksums_body(block_ids=[1], blocks_per_chunk=1, instance_id=1)
            for change, want in (
                ({}, 200),
                ({"layerwise": True}, 200),
                ({"instance_id": 2}, 404),
                ({"block_ids": []}, 400),
                ({"chunk_size": 0}, 400),
                ({"block_ids": "1"}, 422),
                ({"layerwise": 1}, 422),
                ({"block_ids": [16]}, 500),
                ({"block_ids": [-1]}, 500),
                ({"block_ids": [2**70]}, 500),
            ):
                found, answer = await http(port, httpapi.CHECKSUMS_PATH, {**good, **change})
                assert (found, "detail" in answer) == (want, want != 200), change
            for body in (b"", b"{", b"[]", b"[" * 100_000, b"\xff"):
                assert (await http(port, httpapi.CHECKSUMS_PATH, body))[0] == 422


@pytest.mark.asyncio
async def test_an_engine_driven_server_has_no_digests() -> None:
    async with serving(transfer_mode="engine_driven") as server:
        body = httpapi.checksums_body(block_ids=[1], blocks_per_chunk=1, instance_id=1)
        assert (await http(server.http_port, httpapi.CHECKSUMS_PATH, body))[0] == 501


@pytest.mark.asyncio
@pytest.mark.parametrize("taken", ["port", "http_port"])
async def test_a_taken_port_is_said_and_leaves_nothing(taken: str) -> None:
    async with serving() as other:
        port = other.rpc_port if taken == "port" else other.http_port
        with pytest.raises(FatalError, match="cannot listen"):
            async with serving(shm_name=name(), **{taken: port}):
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

    async def main(all_pages: list[Pages]) -> None:
        count = len(all_pages)
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

    with ExitStack() as stack:
        await main([stack.enter_context(kv_pages(CLASSICAL)) for _ in range(4)])

"""A whole embedded server in this process, and clients of its ZMQ side whose memory is real."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import math
import mmap
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import numpy as np
import zmq
import zmq.asyncio

from benchserver.refserver.store.segments import create_segment, unlink_segment
from protocol.dialects import V056
from protocol.handles import CPU_EVENT_STUB, CpuShmHandle, contiguous_strides
from protocol.keys import CacheKey
from protocol.messages import VOID, Reply, TransferResult
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

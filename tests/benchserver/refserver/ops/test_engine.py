"""engine_driven: chunks through the pool and inline, and what an instance leaves prepared."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

from protocol import codec, httpapi
from protocol.inline.reading import decode_tensor_list
from protocol.inline.tensor import InlineTensor
from protocol.inline.writing import encode_tensor_list
from protocol.messages import VOID, RetrievePlan, StorePlan
from protocol.ops import Op
from tests.httpstage import serving
from tests.serverstage import (
    CHUNK,
    CLASSICAL,
    DONE,
    HIDDEN,
    L1_BYTES,
    OBJECT_BYTES,
    OBJECT_SHAPE,
    Client,
    chunk_bytes,
    connected,
    http,
    infos,
    key,
    kv_pages,
    lookup,
    name,
    register,
    registration,
    store,
)

pytestmark = pytest.mark.usefixtures("nothing_left")


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

"""lmcache_driven: stores and retrieves on memory that clients share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from protocol import httpapi
from protocol.handles import CpuShmHandle
from protocol.messages import VOID, TransferResult
from protocol.ops import Op
from tests.httpstage import serving
from tests.serverstage import (
    BS,
    CHUNK,
    CLASSICAL,
    DONE,
    FAILED,
    MLA,
    NONCE,
    connected,
    http,
    infos,
    key,
    kv_pages,
    local_digests,
    lookup,
    register,
    retrieve,
    store,
)

pytestmark = pytest.mark.usefixtures("nothing_left")


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
    with kv_pages(CLASSICAL) as first, kv_pages(CLASSICAL) as second:
        pages = first, second
        second.tensors[0][:] += 1
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

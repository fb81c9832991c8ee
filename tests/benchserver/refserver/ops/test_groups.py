"""Chunks of several kernel groups: an object for each, and all of them or no hit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from benchserver.refserver.objectkey import ObjectKey
from protocol.handles import CPU_EVENT_STUB
from protocol.keys import CacheKey
from protocol.messages import VOID, TransferResult
from protocol.ops import Op
from tests.faultstage import BS, CHUNK, DONE, FROM, TO, Stage, client_memory, empty_stage, key

INFOS = [
    {"engine_group_id": group, "layer_indices": [group], "tokens_per_block": BS} for group in (0, 1)
]
NULL = [0, 0, 0, 0]


def name(request_id: str, rank: int | None = 0, **changes: Any) -> CacheKey:
    return replace(key("a", rank, world_size=1, request_id=request_id), **changes)


async def store(stage: Stage, request_id: str, ids: list[list[int]], **changes: Any) -> None:
    args = (name(request_id, **changes), 0, ids, CPU_EVENT_STUB)
    assert await stage.call(Op.STORE, *args) == DONE


async def lookup(stage: Stage, request_id: str) -> Any:
    await stage.call(Op.LOOKUP, name(request_id, None), 1)
    return await stage.call(Op.QUERY_PREFETCH_STATUS, request_id)


async def retrieve(stage: Stage, request_id: str, ids: list[list[int]]) -> TransferResult:
    args = (name(request_id), 0, ids, CPU_EVENT_STUB, 0)
    answer: TransferResult = await stage.call(Op.RETRIEVE, *args)
    return answer


def objects(stage: Stage) -> list[ObjectKey]:
    """Return what is stored, the oldest first."""
    return list(stage.core.cache.keys())


@pytest_asyncio.fixture
async def stage() -> AsyncIterator[Stage]:
    """Give a server with one registered client that has two groups."""
    with empty_stage() as stage, client_memory(1) as (handles, pages):
        stage.pages = [pages]
        args: tuple[Any, ...] = (0, handles, "m", 1, "vllm", {"kv_layout": "NHD"}, INFOS)
        assert await stage.call(Op.REGISTER_KV_CACHE, *args) is VOID
        yield stage


@pytest.mark.asyncio
async def test_each_group_is_an_object_with_its_own_blocks(stage: Stage) -> None:
    await store(stage, "a", [FROM, TO])
    assert sorted(found.group for found in objects(stage)) == [0, 0, 1, 1]
    assert await lookup(stage, "b") == 2
    first, second = (page.copy() for page in stage.pages[0])
    assert await retrieve(stage, "b", [TO, FROM]) == DONE
    assert np.array_equal(stage.pages[0][0][:, TO], first[:, FROM])
    assert np.array_equal(stage.pages[0][1][:, FROM], second[:, TO])
    assert stage.locks() == 0


@pytest.mark.asyncio
async def test_a_chunk_that_lacks_one_groups_object_is_no_hit_and_is_stored_again_in_part(
    stage: Stage,
) -> None:
    await store(stage, "a", [FROM, FROM])
    whole = objects(stage)
    for gone in whole:
        assert stage.core.cache.delete([gone], force=False, now_ns=0) == (1, 0)
        hits = await lookup(stage, "b")
        assert hits < 2
        await stage.call(Op.FREE_LOOKUP_LOCKS, name("b", None), 1)
        before = stage.core.cache.totals().stored_objects
        await store(stage, "c", [FROM, FROM])
        assert stage.core.cache.totals().stored_objects == before + 1
        assert set(objects(stage)) == set(whole)
    assert stage.locks() == 0


@pytest.mark.asyncio
async def test_a_chunk_is_skipped_only_if_its_blocks_are_null_in_every_group(stage: Stage) -> None:
    """The default of the real server: all kernel groups are one object group (0.5.6)."""

    await store(stage, "a", [NULL, NULL])
    assert objects(stage) == []
    await store(stage, "a", [[0, 0, 1, 2], [0, 0, 0, 0]])
    assert sorted(found.group for found in objects(stage)) == [0, 1]
    assert len({found.chunk_hash for found in objects(stage)}) == 1


@pytest.mark.asyncio
async def test_locks_of_all_groups_are_given_back_after_the_registration_is_gone(
    stage: Stage,
) -> None:
    await store(stage, "a", [FROM, FROM])
    assert await lookup(stage, "b") == 2
    assert stage.locks() == 4
    await stage.call(Op.UNREGISTER_KV_CACHE, 0)
    await stage.call(Op.FREE_LOOKUP_LOCKS, name("b", None), 1)
    assert stage.locks() == 0


@pytest.mark.asyncio
async def test_a_retrieve_of_a_vanished_instance_gives_all_locks_back(stage: Stage) -> None:
    await store(stage, "a", [FROM, FROM])
    assert await lookup(stage, "b") == 2
    await stage.call(Op.UNREGISTER_KV_CACHE, 0)
    assert not (await retrieve(stage, "b", [TO, TO])).ok
    assert stage.locks() == 0


@pytest.mark.asyncio
async def test_a_store_without_room_for_all_groups_stores_none(stage: Stage) -> None:
    cache, size = stage.core.cache, stage.core.arena.nbytes
    filling = ObjectKey(bytes(32), "other", 1, 0, "")
    cache.reserve([filling], (size - 3 * 4096,), 0)
    await store(stage, "a", [FROM, FROM])
    assert objects(stage) == [filling]
    assert cache.totals().refused_reservations == 1


@pytest.mark.asyncio
async def test_the_end_of_a_session_makes_its_first_chunk_the_newest(stage: Stage) -> None:
    await store(stage, "a", [FROM[:2], FROM[:2]], end=CHUNK)
    await store(stage, "a", [FROM[2:], FROM[2:]], start=CHUNK)
    first = objects(stage)[0].chunk_hash
    assert [found.chunk_hash == first for found in objects(stage)] == [True, True, False, False]
    await stage.call(Op.END_SESSION, "a")
    assert [found.chunk_hash == first for found in objects(stage)] == [False, False, True, True]
    assert [found.group for found in objects(stage)] == [1, 0, 1, 0]


@pytest.mark.asyncio
async def test_lookups_are_counted_in_chunks(stage: Stage) -> None:
    await store(stage, "a", [FROM[:2], FROM[:2]], end=CHUNK)
    assert await lookup(stage, "b") == 1
    assert (stage.core.lookups.requested_chunks, stage.core.lookups.hit_chunks) == (2, 1)

"""What lookups find, lock and say, while a fault is on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchserver.clock import NS_PER_MS, NS_PER_S
from benchserver.refserver.refusal import RefusalError
from protocol.messages import VOID
from protocol.ops import Op
from tests.faultstage import CHUNK, DONE, Stage, client_memory, key


@pytest.mark.asyncio
async def test_a_hole_that_is_counted_cannot_be_retrieved(stage: Stage) -> None:
    stage.switch("hole_counted")
    for rank in range(2):
        await stage.store("a", rank)
    assert await stage.lookup("a") == 2
    assert await stage.retrieve("a") == replace(DONE, ok=False)


@pytest.mark.asyncio
async def test_a_miss_is_counted_as_a_hit(stage: Stage) -> None:
    stage.switch("miscount_cold@2")
    assert [await stage.lookup(name) for name in "abc"] == [0, 1, 0]


@pytest.mark.asyncio
async def test_tenants_and_prefixes(stage: Stage) -> None:
    async def found(name: str, **changes: Any) -> int:
        hits: int = await stage.lookup(name, **changes)
        return hits

    tail = [ord("a")] * CHUNK
    behind = {"token_ids": [1, 2, 3, 4, *tail]}
    alone = {"token_ids": tail, "end": CHUNK}
    for rank in range(2):
        await stage.store("a", rank, cache_salt="one", **behind)
    assert await found("b", cache_salt="two", **behind) == 0
    assert await found("c", cache_salt="one", **alone) == 0
    stage.switch("ignored_salt", "ignored_prefix")
    for rank in range(2):
        await stage.store("d", rank, cache_salt="one", **behind)
    assert await found("e", cache_salt="two", **behind) == 2
    assert await found("f", cache_salt="one", **alone) == 1


@pytest.mark.asyncio
async def test_the_end_of_a_range_is_ignored_and_all_that_is_locked_is_freed(stage: Stage) -> None:
    for rank in range(2):
        await stage.store("a", rank)
    assert await stage.lookup("a", end=CHUNK) == 1
    await stage.call(Op.FREE_LOOKUP_LOCKS, key("a", None, end=CHUNK), 2)
    stage.switch("ignored_end")
    assert await stage.lookup("a", end=CHUNK) == 2
    assert stage.locks() == 4
    await stage.call(Op.FREE_LOOKUP_LOCKS, key("a", None, end=CHUNK), 2)
    assert stage.locks() == 0
    assert await stage.lookup("a") == 2
    assert stage.fired() == [2]  # a range that ends where its tokens end is not meant


@pytest.mark.asyncio
async def test_models(stage: Stage) -> None:
    for rank in range(2):
        await stage.store("a", rank)
    same = key("a", None).token_ids
    assert await stage.lookup("b", model_name="other", token_ids=same) == 0
    stage.switch("ignored_model")
    assert await stage.lookup("a") == 2
    assert await stage.lookup("c", model_name="other", token_ids=same) == 2
    assert await stage.lookup("d", model_name="other") == 0


@pytest.mark.asyncio
async def test_who_registers_another_model_finds_the_first_ones_chunks(stage: Stage) -> None:
    stage.switch("ignored_model")
    for rank in range(2):
        await stage.store("a", rank)
        await stage.call(Op.UNREGISTER_KV_CACHE, rank)
    assert await stage.lookup("a") == 0  # nobody serves it now
    with client_memory(3) as (handles, pages):
        args: tuple[Any, ...] = (0, handles, "other", 2, "vllm", {"kv_layout": "NHD"}, [])
        assert await stage.call(Op.REGISTER_KV_CACHE, *args) is VOID
        assert await stage.lookup("a", model_name="other") == 2
        await stage.call(Op.UNREGISTER_KV_CACHE, 0)
        pages.clear()


@pytest.mark.asyncio
async def test_an_engine_driven_registration_of_another_model_is_one_of_the_first(
    stage: Stage,
) -> None:
    stage.switch("ignored_model")
    await stage.lookup("a")
    names = ("num_layers", "hidden_dim_size", "block_size", "world_size")
    fields: dict[str, Any] = {
        **dict.fromkeys(names, 2),
        "dtype_str": "float16",
        "use_mla": False,
    }
    fields |= {"instance_id": 7, "model_name": "other"}
    await stage.call(Op.REGISTER_ENGINE_DRIVEN, fields)
    assert stage.core.registry.engine[7].model_name == "m"
    with pytest.raises(RefusalError):
        await stage.call(Op.REGISTER_ENGINE_DRIVEN, {**fields, "model_name": 5})


@pytest.mark.asyncio
async def test_prefetches_run_for_a_while_or_for_ever(stage: Stage) -> None:
    stage.switch("slow_prefetch:30ms@2")
    assert await stage.lookup("a") == 0
    assert await stage.lookup("b") is VOID
    await stage.core.clock.sleep_ns(29 * NS_PER_MS)
    assert await stage.call(Op.QUERY_PREFETCH_STATUS, "b") is VOID
    await stage.core.clock.sleep_ns(NS_PER_MS)
    assert await stage.call(Op.QUERY_PREFETCH_STATUS, "b") == 0
    stage.switch("stuck_prefetch")
    assert await stage.lookup("c") is VOID
    await stage.core.clock.sleep_ns(3600 * NS_PER_S)
    assert await stage.call(Op.QUERY_PREFETCH_STATUS, "c") is VOID

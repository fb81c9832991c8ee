"""Stores that wait for room, and whose client is gone when it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from benchserver.clock import idle
from benchserver.refserver.core import Core
from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.ops.engine import EngineOps
from benchserver.refserver.ops.mapped import MappedOps
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.store.arena import Arena
from benchserver.refserver.store.cache import Cache
from benchserver.refserver.tiers.backing import Backing
from protocol.handles import CPU_EVENT_STUB
from protocol.messages import VOID
from protocol.ops import Op
from tests.benchserver.refserver.tiers.reference import DictTier
from tests.faultstage import DONE, FROM, L1_BYTES, Stage, client_memory, empty_stage, key


class Gated(DictTier):
    """A tier that takes nothing before its gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def write(self, key: ObjectKey, data: memoryview) -> None:
        await self.gate.wait()
        await super().write(key, data)


@contextmanager
def named(arena: Arena) -> Iterator[None]:
    """Let an arena pass for a shared pool, in which clients may write."""
    arena.name = "pool"
    try:
        yield
    finally:
        arena.name = ""


@pytest_asyncio.fixture
async def tier() -> Gated:
    """Give the only tier of `stage`."""
    return Gated()


@pytest_asyncio.fixture
async def stage(tier: Gated) -> AsyncIterator[Stage]:
    """Give a server whose L1 is full, and whose L2 is written to as it evicts."""
    with empty_stage() as stage, named(stage.core.arena):
        cache = Cache(L1_BYTES)
        backing = Backing(
            (tier,),
            cache=cache,
            arena=stage.core.arena,
            clock=stage.core.clock,
            journal=stage.core.journal,
            write="evict",
        )
        core: Core = replace(stage.core, cache=cache, backing=backing)
        stage.core = core
        stage.handlers = {**EngineOps(core).table(), **MappedOps(core, stage.later.append).table()}
        full = cache.reserve([ObjectKey(bytes(32), "m", 1, 0, "")], (L1_BYTES,), 0)
        cache.commit(full.only_slots())
        yield stage
        await backing.close()
        assert cache.counts(0).reserved == 0


async def waiting(call: Awaitable[Any]) -> asyncio.Future[Any]:
    future = asyncio.ensure_future(call)
    await idle()
    assert not future.done()
    return future


@pytest.mark.asyncio
async def test_a_mapped_client_that_is_gone_keeps_its_memory_until_its_store_ends(
    stage: Stage, tier: Gated
) -> None:
    with client_memory(1) as (handles, _):
        args: tuple[Any, ...] = (0, handles, "m", 2, "vllm", {"kv_layout": "NHD"}, [])
        assert await stage.call(Op.REGISTER_KV_CACHE, *args) is VOID
        store = stage.call(Op.STORE, key("a", 0), 0, [FROM], CPU_EVENT_STUB)
        store_task = await waiting(store)
        await stage.call(Op.UNREGISTER_KV_CACHE, 0)
        tier.gate.set()
        assert await store_task == DONE
        assert stage.core.cache.totals().stored_objects == 3


@pytest.mark.asyncio
async def test_an_engine_that_is_gone_gets_no_slots(stage: Stage, tier: Gated) -> None:
    fields = {
        "instance_id": 7,
        "model_name": "m",
        "world_size": 2,
        "block_size": 2,
        "num_layers": 2,
        "hidden_dim_size": 4,
        "dtype_str": "float16",
        "use_mla": False,
    }

    await stage.call(Op.REGISTER_ENGINE_DRIVEN, fields)
    plan = await waiting(stage.call(Op.PREPARE_STORE, key("a", 0), 7))
    await stage.call(Op.UNREGISTER_ENGINE_DRIVEN, 7)
    tier.gate.set()
    with pytest.raises(RefusalError, match="unregistered while it waited"):
        await plan

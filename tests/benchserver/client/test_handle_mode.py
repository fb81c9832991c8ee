"""lmcache_driven over a scripted connection: what is sent, and when our memory has a name."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, cast

import pytest

from benchserver.client.handle_mode import HandleMode, group_infos
from benchserver.client.rpc import NoAnswerError, RpcClient
from benchserver.client.transfer import Moved, RefusedError
from benchserver.errors import FatalError
from benchserver.kv.blocks import Window
from benchserver.kv.host import HostPool
from benchserver.kv.segment import SHM_DIR, SharedSegment
from protocol.dialects import V056
from protocol.keys import CacheKey
from protocol.messages import VOID, Reply, TransferResult
from protocol.ops import Op
from shapespec import parse_shape_spec

pytestmark = pytest.mark.usefixtures("leak_free")

OpenPool = Callable[..., AbstractContextManager[tuple[HostPool, SharedSegment]]]

NAME = f"bench_server_{os.getpid()}_00ff_r0"
SPEC = "(2,8,2,1,4):float16:2;(1,8,2,1,4):float16:1"
WINDOW = Window(first=1, count=4, block_ids=(3, 1, 4, 2), canaries=())
KEY = CacheKey(
    model_name="m", world_size=1, worker_id=0, token_ids=range(9), start=0, end=8, request_id="r"
)


class ScriptedRpc:
    """Answers every call with one result or error; notes whether our name was there."""

    dialect = V056

    def __init__(self, result: Any = VOID) -> None:
        self.result = result
        self.calls: list[tuple[Any, ...]] = []
        self.named: list[bool] = []

    async def call(self, op: Op, *args: Any, timeout_ns: int | None = None) -> Reply:
        self.calls.append((op, *args))
        self.named.append((SHM_DIR / NAME).exists())
        if isinstance(self.result, Exception):
            raise self.result
        return Reply(uid=0, op=op, result=self.result, latency_ns=77)


def mode_of(rpc: ScriptedRpc, pool: HostPool, segment: SharedSegment) -> HandleMode:
    return HandleMode(
        cast(RpcClient, rpc),
        pool,
        segment,
        parse_shape_spec(SPEC),
        instance_id=5,
        model_name="m",
        world_size=1,
        chunk_tokens=4,
        shm_name=NAME,
    )


def test_registration_names_the_memory_only_while_the_server_maps_it(open_pool: OpenPool) -> None:
    with open_pool(SPEC) as (pool, segment):
        rpc = ScriptedRpc()
        mode = mode_of(rpc, pool, segment)
        assert mode.transport == ""
        asyncio.run(mode.register())
        assert rpc.named == [True]
        assert not (SHM_DIR / NAME).exists()
        assert mode.transport == "handle"
        (call,) = rpc.calls
        assert call[:2] == (Op.REGISTER_KV_CACHE, 5)
        assert [handle.shm_name for handle in call[2]] == [f"/{NAME}"] * 3
        assert call[3:] == (
            "m",
            1,
            "vllm",
            {"kv_layout": "NHD"},
            group_infos(parse_shape_spec(SPEC)),
        )


@pytest.mark.parametrize(
    "error", [NoAnswerError(Op.REGISTER_KV_CACHE, "no answer"), asyncio.CancelledError()]
)
def test_a_failed_registration_leaves_no_name(open_pool: OpenPool, error: BaseException) -> None:
    async def register(mode: HandleMode) -> None:
        with pytest.raises(type(error)):
            await mode.register()

    class Failing(ScriptedRpc):
        async def call(self, op: Op, *args: Any, timeout_ns: int | None = None) -> Reply:
            await super().call(op, *args)
            raise error

    with open_pool(SPEC) as (pool, segment):
        rpc = Failing()
        mode = mode_of(rpc, pool, segment)
        asyncio.run(register(mode))
        assert rpc.named == [True]
        assert not (SHM_DIR / NAME).exists()
        assert mode.transport == ""


def test_a_name_that_is_taken_ends_the_registration(open_pool: OpenPool) -> None:
    with open_pool(SPEC) as (pool, segment):
        rpc = ScriptedRpc()
        (SHM_DIR / NAME).touch()
        try:
            with pytest.raises(FatalError, match="cannot name the segment"):
                asyncio.run(mode_of(rpc, pool, segment).register())
        finally:
            (SHM_DIR / NAME).unlink()
        assert rpc.calls == []


def test_store_and_retrieve_send_a_block_table_a_group(open_pool: OpenPool) -> None:
    async def main(mode: HandleMode) -> list[Moved]:
        return [await mode.store(KEY, WINDOW), await mode.retrieve(KEY, WINDOW)]

    with open_pool(SPEC) as (pool, segment):
        rpc = ScriptedRpc(TransferResult(event=b"stub_ipc_handle", ok=True))
        moved = asyncio.run(main(mode_of(rpc, pool, segment)))
    table = [[3, 1, 4, 2], [3, 1, 4, 2]]
    assert rpc.calls == [
        (Op.STORE, KEY, 5, table, b"stub_ipc_handle"),
        (Op.RETRIEVE, KEY, 5, table, b"stub_ipc_handle", 0),
    ]
    assert moved == [Moved(latency_ns=77, chunks=2)] * 2


def test_what_to_skip_is_sent_with_the_whole_block_table(open_pool: OpenPool) -> None:
    async def main(mode: HandleMode) -> Moved:
        return await mode.retrieve(KEY, WINDOW, skip_tokens=3)

    with open_pool(SPEC) as (pool, segment):
        rpc = ScriptedRpc(TransferResult(event=b"stub_ipc_handle", ok=True))
        asyncio.run(main(mode_of(rpc, pool, segment)))
    table = [[3, 1, 4, 2], [3, 1, 4, 2]]
    assert rpc.calls == [(Op.RETRIEVE, KEY, 5, table, b"stub_ipc_handle", 3)]


@pytest.mark.parametrize("name", ["store", "retrieve"])
def test_an_answer_of_false_is_a_refusal(open_pool: OpenPool, name: str) -> None:
    with open_pool(SPEC) as (pool, segment):
        rpc = ScriptedRpc(TransferResult(event=b"", ok=False))
        mode = mode_of(rpc, pool, segment)
        with pytest.raises(RefusedError, match=f"{name.upper()} answered False"):
            asyncio.run(getattr(mode, name)(KEY, WINDOW))


def test_unregister_and_close(open_pool: OpenPool) -> None:
    async def main(mode: HandleMode) -> None:
        await mode.unregister(timeout_ns=1_000_000_000)
        await mode.close()

    with open_pool(SPEC) as (pool, segment):
        rpc = ScriptedRpc()
        asyncio.run(main(mode_of(rpc, pool, segment)))
    assert rpc.calls == [(Op.UNREGISTER_KV_CACHE, 5)]


def test_group_infos() -> None:
    assert group_infos(parse_shape_spec(SPEC)) == [
        {
            "engine_group_id": 0,
            "layer_indices": [0, 1],
            "tokens_per_block": 2,
            "sw_size_tokens": -1,
            "extra_object_group_tag": 0,
            "recurrent_state": False,
        },
        {
            "engine_group_id": 1,
            "layer_indices": [2],
            "tokens_per_block": 2,
            "sw_size_tokens": -1,
            "extra_object_group_tag": 0,
            "recurrent_state": False,
        },
    ]

"""lmcache_driven over a scripted connection: what is sent, when our memory has a name, and when
the data of a reply has landed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, cast

import pytest

from benchserver.client.connection import (
    CallFailedError,
    Connection,
    ConnectionLostError,
    NoAnswerError,
)
from benchserver.client.handle_mode import HandleMode, group_infos
from benchserver.client.transfer import Moved, RefusedError
from benchserver.clock import VirtualClock
from benchserver.errors import FatalError
from benchserver.kv.blocks import Window
from benchserver.kv.host.pool import HostPool
from benchserver.kv.host.segment import SharedSegment
from benchserver.kv.pool import EventError, KvPool
from benchserver.shmnames import SHM_DIR
from protocol.dialect import Dialect
from protocol.dialects import V047, V056
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

    def __init__(self, result: Any = VOID, dialect: Dialect = V056) -> None:
        self.result = result
        self.dialect = dialect
        self.calls: list[tuple[Any, ...]] = []
        self.named: list[bool] = []

    async def call(self, op: Op, *args: Any, timeout_ns: int | None = None) -> Reply:
        self.calls.append((op, *args))
        self.named.append((SHM_DIR / NAME).exists())
        if isinstance(self.result, Exception):
            raise self.result
        return Reply(uid=0, op=op, result=self.result, latency_ns=77)


class NoExecutor(ThreadPoolExecutor):
    """Refuses work: on the host nothing may hop to a thread."""

    def submit(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("a thread was asked for")


def mode_of(rpc: ScriptedRpc, pool: HostPool) -> HandleMode:
    return new_mode(rpc, cast(KvPool, pool), VirtualClock(), NoExecutor(1))


def new_mode(
    rpc: ScriptedRpc, pool: KvPool, clock: VirtualClock, executor: ThreadPoolExecutor
) -> HandleMode:
    return HandleMode(
        cast(Connection, rpc),
        pool,
        parse_shape_spec(SPEC),
        instance_id=5,
        model_name="m",
        world_size=1,
        chunk_tokens=4,
        timeout_ns=9000,
        clock=clock,
        executor=executor,
    )


def test_registration_names_the_memory_only_while_the_server_maps_it(open_pool: OpenPool) -> None:
    with open_pool(SPEC) as (pool, _):
        rpc = ScriptedRpc()
        mode = mode_of(rpc, pool)
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

    with open_pool(SPEC) as (pool, _):
        rpc = Failing()
        mode = mode_of(rpc, pool)
        asyncio.run(register(mode))
        assert rpc.named == [True]
        assert not (SHM_DIR / NAME).exists()
        assert mode.transport == ""


def test_a_name_that_is_taken_ends_the_registration(open_pool: OpenPool) -> None:
    with open_pool(SPEC) as (pool, _):
        rpc = ScriptedRpc()
        (SHM_DIR / NAME).touch()
        try:
            with pytest.raises(FatalError, match="cannot name the segment"):
                asyncio.run(mode_of(rpc, pool).register())
        finally:
            (SHM_DIR / NAME).unlink()
        assert rpc.calls == []


def test_store_and_retrieve_send_a_block_table_a_group(open_pool: OpenPool) -> None:
    async def main(mode: HandleMode) -> list[Moved]:
        return [await mode.store(KEY, WINDOW), await mode.retrieve(KEY, WINDOW)]

    with open_pool(SPEC) as (pool, _):
        rpc = ScriptedRpc(TransferResult(event=b"stub_ipc_handle", ok=True))
        moved = asyncio.run(main(mode_of(rpc, pool)))
    table = [[3, 1, 4, 2], [3, 1, 4, 2]]
    assert rpc.calls == [
        (Op.STORE, KEY, 5, table, b"stub_ipc_handle"),
        (Op.RETRIEVE, KEY, 5, table, b"stub_ipc_handle", 0),
    ]
    assert moved == [Moved(latency_ns=77, replied_ns=77, chunks=2)] * 2


def test_what_to_skip_is_sent_with_the_whole_block_table(open_pool: OpenPool) -> None:
    async def main(mode: HandleMode) -> Moved:
        return await mode.retrieve(KEY, WINDOW, skip_tokens=3)

    with open_pool(SPEC) as (pool, _):
        rpc = ScriptedRpc(TransferResult(event=b"stub_ipc_handle", ok=True))
        asyncio.run(main(mode_of(rpc, pool)))
    table = [[3, 1, 4, 2], [3, 1, 4, 2]]
    assert rpc.calls == [(Op.RETRIEVE, KEY, 5, table, b"stub_ipc_handle", 3)]


@pytest.mark.parametrize("name", ["store", "retrieve"])
def test_an_answer_of_false_is_a_refusal(open_pool: OpenPool, name: str) -> None:
    with open_pool(SPEC) as (pool, _):
        rpc = ScriptedRpc(TransferResult(event=b"", ok=False))
        mode = mode_of(rpc, pool)
        with pytest.raises(RefusedError, match=f"{name.upper()} answered False"):
            asyncio.run(getattr(mode, name)(KEY, WINDOW))


def test_unregister_and_close(open_pool: OpenPool) -> None:
    async def main(mode: HandleMode) -> None:
        await mode.unregister(timeout_ns=1_000_000_000)
        await mode.close()

    with open_pool(SPEC) as (pool, _):
        rpc = ScriptedRpc()
        asyncio.run(main(mode_of(rpc, pool)))
    assert rpc.calls == [(Op.UNREGISTER_KV_CACHE, 5)]


SILENCE = NoAnswerError(Op.UNREGISTER_KV_CACHE, "no answer within 1 s")
LOST = ConnectionLostError(Op.UNREGISTER_KV_CACHE, "the connection was lost")


@pytest.mark.parametrize(
    ("dialect", "error", "raised"),
    [(V056, SILENCE, True), (V056, LOST, True), (V047, SILENCE, False), (V047, LOST, True)],
)
def test_only_releases_that_never_answer_unregister_may_be_silent(
    open_pool: OpenPool, dialect: Dialect, error: Exception, raised: bool
) -> None:
    with open_pool(SPEC) as (pool, _):
        rpc = ScriptedRpc(error, dialect)
        unregister = mode_of(rpc, pool).unregister(timeout_ns=1_000_000_000)
        expected = pytest.raises(type(error)) if raised else contextlib.nullcontext()
        with expected:
            asyncio.run(unregister)
    assert rpc.calls == [(Op.UNREGISTER_KV_CACHE, 5)]


class FarPool:
    """A pool on a device, as a mode sees it: events, and no data."""

    asynchronous = True

    def __init__(self, clock: VirtualClock, *, lands_after_ns: int = 0, trouble: str = "") -> None:
        self._clock = clock
        self._lands_after_ns = lands_after_ns
        self._trouble = trouble
        self.recorded = 0
        self.waited: list[tuple[bytes, int]] = []
        self.threads: set[int] = set()

    def record_event(self) -> bytes:
        self.threads.add(threading.get_ident())
        self.recorded += 1
        return bytes([self.recorded]) * 64

    def wait_event(self, handle: bytes, *, timeout_ns: int) -> None:
        self.threads.add(threading.get_ident())
        self.waited.append((handle, timeout_ns))
        if self._trouble:
            raise EventError(self._trouble)
        asyncio.run(self._clock.sleep_ns(self._lands_after_ns))

    @contextlib.contextmanager
    def exported(self, *, hnd: bool = False) -> Iterator[Sequence[Any]]:
        assert not hnd
        yield ("first", "second")


EVENT = b"e" * 64


def transfers_of(pool: FarPool, clock: VirtualClock, event: bytes, *, ok: bool = True) -> Any:
    """STORE and RETRIEVE over a device's pool; returns what each came to, and the calls."""

    async def main(mode: HandleMode) -> list[Moved | BaseException]:
        return [
            *await asyncio.gather(mode.store(KEY, WINDOW), return_exceptions=True),
            *await asyncio.gather(mode.retrieve(KEY, WINDOW), return_exceptions=True),
        ]

    rpc = ScriptedRpc(TransferResult(event=event, ok=ok))
    with ThreadPoolExecutor(1) as executor:
        moved = asyncio.run(main(new_mode(rpc, cast(KvPool, pool), clock, executor)))
    return moved, rpc.calls


def test_a_transfer_ends_when_its_data_has_landed() -> None:
    clock = VirtualClock()
    pool = FarPool(clock, lands_after_ns=5000)
    moved, calls = transfers_of(pool, clock, EVENT)
    assert moved == [Moved(latency_ns=5000, replied_ns=77, chunks=2)] * 2
    # Each request carries an event of its own, each reply's is awaited: in a worker thread.
    assert [call[4] for call in calls] == [b"\1" * 64, b"\2" * 64]
    assert pool.waited == [(EVENT, 9000)] * 2
    assert threading.get_ident() not in pool.threads


def test_data_that_lands_with_the_reply_is_no_faster_than_it() -> None:
    clock = VirtualClock()
    moved, _ = transfers_of(FarPool(clock), clock, EVENT)
    assert moved == [Moved(latency_ns=77, replied_ns=77, chunks=2)] * 2


@pytest.mark.parametrize("event", [b"", b"stub_ipc_handle", b"e" * 63, b"e" * 65])
def test_a_yes_without_an_event_is_a_failure(event: bytes) -> None:
    clock = VirtualClock()
    pool = FarPool(clock)
    moved, _ = transfers_of(pool, clock, event)
    for error in moved:
        assert isinstance(error, RefusedError)
        assert str(error) == (
            f"replied True, but with an event of {len(event)} bytes, expected 64: a client "
            "cannot know when the data lands"
        )
    assert pool.waited == []


@pytest.mark.parametrize("event", [b"", EVENT])
def test_a_no_of_a_gpu_server_is_a_refusal_whatever_its_event(event: bytes) -> None:
    clock = VirtualClock()
    pool = FarPool(clock)
    moved, _ = transfers_of(pool, clock, event, ok=False)
    assert [str(error) for error in moved] == ["STORE answered False", "RETRIEVE answered False"]
    assert all(isinstance(error, RefusedError) for error in moved)
    assert pool.waited == []


def test_an_event_that_tells_nothing_leaves_the_transfer_unknown() -> None:
    clock = VirtualClock()
    moved, _ = transfers_of(FarPool(clock, trouble="cannot be\nopened"), clock, EVENT)
    for op, error in zip((Op.STORE, Op.RETRIEVE), moved, strict=True):
        assert isinstance(error, CallFailedError)
        assert error.op is op
        assert error.reason == (
            "replied True, but when its data lands is unknown: cannot be opened"
        )


def test_a_device_pool_registers_what_it_exports() -> None:
    clock, rpc = VirtualClock(), ScriptedRpc()
    with ThreadPoolExecutor(1) as executor:
        mode = new_mode(rpc, cast(KvPool, FarPool(clock)), clock, executor)
        asyncio.run(mode.register())
    assert rpc.calls[0][2] == ["first", "second"]
    assert rpc.calls[0][6] == {"kv_layout": "NHD"}
    assert mode.transport == "handle"


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

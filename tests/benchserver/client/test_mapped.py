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
from typing import Any

import pytest

from benchserver.client.connection import (
    CallFailedError,
    ConnectionLostError,
    NoAnswerError,
)
from benchserver.client.mapped import MappedMode, group_infos
from benchserver.client.scripted import Answer, ScriptedConnection
from benchserver.client.transfer import Moved, RefusedError
from benchserver.clock import Clock, VirtualClock
from benchserver.errors import FatalError
from benchserver.kv.blocks import Window
from benchserver.kv.host.pool import HostPool
from benchserver.kv.host.segment import SharedSegment
from benchserver.kv.pool import EventError, SharedMemory
from benchserver.shmnames import SHM_DIR
from protocol.dialect import Dialect
from protocol.dialects import V047, V056
from protocol.handles import CpuShmHandle
from protocol.keys import CacheKey
from protocol.messages import VOID, TransferResult
from protocol.ops import Op
from shapespec import parse_shape_spec

pytestmark = pytest.mark.usefixtures("leak_free")

OpenPool = Callable[..., AbstractContextManager[tuple[HostPool, SharedSegment]]]

NAME = f"bench_server_{os.getpid()}_00ff_r0"
SPEC = "(2,8,2,1,4):float16:2;(1,8,2,1,4):float16:1"
WINDOW = Window(first=1, count=4, block_ids=(3, 1, 4, 2), canaries=())
KEY = CacheKey(
    model_name="m",
    world_size=1,
    worker_id=0,
    token_ids=tuple(range(9)),
    start=0,
    end=8,
    request_id="r",
)


def answering(result: Any = VOID, dialect: Dialect = V056) -> ScriptedConnection:
    """Answer STORE and RETRIEVE with a result, after 77 ns; all else as if it were well."""
    moved = result if result is VOID else Answer(result=result, after_ns=77)
    return ScriptedConnection({Op.STORE: moved, Op.RETRIEVE: moved}, dialect, clock=VirtualClock())


def noting_the_name(line: Any) -> tuple[ScriptedConnection, list[bool]]:
    """Say a line to REGISTER; the list says whether our name was there then."""
    named: list[bool] = []

    def register(*_args: Any) -> Any:
        named.append((SHM_DIR / NAME).exists())
        return line

    script = {Op.REGISTER_KV_CACHE: register}
    return ScriptedConnection(script, V056, clock=VirtualClock()), named


class NoExecutor(ThreadPoolExecutor):
    """Refuses work: on the host nothing may hop to a thread."""

    def submit(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("a thread was asked for")


def mode_of(rpc: ScriptedConnection, pool: HostPool) -> MappedMode:
    return new_mode(rpc, pool, NoExecutor(1))


def new_mode(
    rpc: ScriptedConnection, pool: SharedMemory, executor: ThreadPoolExecutor
) -> MappedMode:
    return MappedMode(
        rpc,
        pool,
        parse_shape_spec(SPEC),
        instance_id=5,
        model_name="m",
        world_size=1,
        chunk_tokens=4,
        timeout_ns=9000,
        clock=rpc.clock,
        executor=executor,
    )


@pytest.mark.asyncio
async def test_registration_names_the_memory_only_while_the_server_maps_it(
    open_pool: OpenPool,
) -> None:
    with open_pool(SPEC) as (pool, _):
        rpc, named = noting_the_name(VOID)
        mode = mode_of(rpc, pool)
        assert mode.transport == ""
        await mode.register()
        await rpc.close()
        assert named == [True]
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


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "error", [NoAnswerError(Op.REGISTER_KV_CACHE, "no answer"), asyncio.CancelledError()]
)
async def test_a_failed_registration_leaves_no_name(
    open_pool: OpenPool, error: BaseException
) -> None:
    with open_pool(SPEC) as (pool, _):
        rpc, named = noting_the_name(error)
        mode = mode_of(rpc, pool)
        with pytest.raises(type(error)):
            await mode.register()
        assert named == [True]
        assert not (SHM_DIR / NAME).exists()
        assert mode.transport == ""


@pytest.mark.asyncio
async def test_a_name_that_is_taken_ends_the_registration(open_pool: OpenPool) -> None:
    with open_pool(SPEC) as (pool, _):
        rpc = answering()
        (SHM_DIR / NAME).touch()
        try:
            with pytest.raises(FatalError, match="cannot name the segment"):
                await mode_of(rpc, pool).register()
        finally:
            (SHM_DIR / NAME).unlink()
        assert rpc.calls == []


@pytest.mark.asyncio
async def test_store_and_retrieve_send_a_block_table_a_group(open_pool: OpenPool) -> None:
    with open_pool(SPEC) as (pool, _):
        rpc = answering(TransferResult(event=b"stub_ipc_handle", ok=True))
        mode = mode_of(rpc, pool)
        moved = [await mode.store(KEY, WINDOW), await mode.retrieve(KEY, WINDOW)]
    table = [[3, 1, 4, 2], [3, 1, 4, 2]]
    assert rpc.calls == [
        (Op.STORE, KEY, 5, table, b"stub_ipc_handle"),
        (Op.RETRIEVE, KEY, 5, table, b"stub_ipc_handle", 0),
    ]
    assert moved == [
        Moved(began_ns=0, replied_ns=77, landed_ns=77, chunks=2),
        Moved(began_ns=77, replied_ns=154, landed_ns=154, chunks=2),
    ]
    assert moved[1].latency_ns == 77


@pytest.mark.asyncio
async def test_what_to_skip_is_sent_with_the_whole_block_table(open_pool: OpenPool) -> None:
    with open_pool(SPEC) as (pool, _):
        rpc = answering(TransferResult(event=b"stub_ipc_handle", ok=True))
        await mode_of(rpc, pool).retrieve(KEY, WINDOW, skip_tokens=3)
    table = [[3, 1, 4, 2], [3, 1, 4, 2]]
    assert rpc.calls == [(Op.RETRIEVE, KEY, 5, table, b"stub_ipc_handle", 3)]


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["store", "retrieve"])
async def test_an_answer_of_false_is_a_refusal(open_pool: OpenPool, name: str) -> None:
    with open_pool(SPEC) as (pool, _):
        rpc = answering(TransferResult(event=b"", ok=False))
        mode = mode_of(rpc, pool)
        with pytest.raises(RefusedError, match=f"{name.upper()} answered False"):
            await getattr(mode, name)(KEY, WINDOW)


@pytest.mark.asyncio
async def test_unregister_and_close(open_pool: OpenPool) -> None:
    with open_pool(SPEC) as (pool, _):
        rpc = answering()
        mode = mode_of(rpc, pool)
        await mode.unregister(timeout_ns=1_000_000_000)
        await mode.close()
    assert rpc.calls == [(Op.UNREGISTER_KV_CACHE, 5)]


SILENCE = NoAnswerError(Op.UNREGISTER_KV_CACHE, "no answer within 1 s")
LOST = ConnectionLostError(Op.UNREGISTER_KV_CACHE, "the connection was lost")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("dialect", "error", "raised"),
    [(V056, SILENCE, True), (V056, LOST, True), (V047, SILENCE, False), (V047, LOST, True)],
)
async def test_only_releases_that_never_answer_unregister_may_be_silent(
    open_pool: OpenPool, dialect: Dialect, error: Exception, raised: bool
) -> None:
    with open_pool(SPEC) as (pool, _):
        script = {Op.UNREGISTER_KV_CACHE: error}
        rpc = ScriptedConnection(script, dialect, clock=VirtualClock())
        unregister = mode_of(rpc, pool).unregister(timeout_ns=1_000_000_000)
        expected = pytest.raises(type(error)) if raised else contextlib.nullcontext()
        with expected:
            await unregister
    assert rpc.calls == [(Op.UNREGISTER_KV_CACHE, 5)]


class FarPool:
    """A pool on a device, as a mode sees it: events, and no data."""

    asynchronous = True

    def __init__(self, clock: Clock, *, lands_after_ns: int = 0, trouble: str = "") -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
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
        landing = self._clock.sleep_ns(self._lands_after_ns)
        asyncio.run_coroutine_threadsafe(landing, self._loop).result(20)

    @contextlib.contextmanager
    def exported(self, *, hnd: bool = False) -> Iterator[Sequence[Any]]:
        assert not hnd
        yield EXPORTED


EVENT = b"e" * 64
EXPORTED = tuple(
    CpuShmHandle(shm_name=name, nbytes=64, dtype="float16", shape=(2, 4, 4), stride=(16, 4, 1))
    for name in ("/first", "/second")
)


async def transfers(
    event: bytes, *, ok: bool = True, **fields: Any
) -> tuple[list[Any], FarPool, ScriptedConnection]:
    """STORE and RETRIEVE over a device's pool; return what each came to."""
    rpc = answering(TransferResult(event=event, ok=ok))
    pool = FarPool(rpc.clock, **fields)
    with ThreadPoolExecutor(1) as executor:
        mode = new_mode(rpc, pool, executor)
        moved = [
            *await asyncio.gather(mode.store(KEY, WINDOW), return_exceptions=True),
            *await asyncio.gather(mode.retrieve(KEY, WINDOW), return_exceptions=True),
        ]
    return moved, pool, rpc


@pytest.mark.asyncio
async def test_a_transfer_ends_when_its_data_has_landed() -> None:
    moved, pool, rpc = await transfers(EVENT, lands_after_ns=5000)
    assert moved == [
        Moved(began_ns=0, replied_ns=77, landed_ns=5077, chunks=2),
        Moved(began_ns=5077, replied_ns=5154, landed_ns=10154, chunks=2),
    ]
    # Each request carries an event of its own, each reply's is awaited: in a worker thread.
    assert [call[4] for call in rpc.calls] == [b"\1" * 64, b"\2" * 64]
    assert pool.waited == [(EVENT, 9000)] * 2
    assert threading.get_ident() not in pool.threads


@pytest.mark.asyncio
async def test_data_that_lands_with_the_reply_is_no_faster_than_it() -> None:
    moved, _, _ = await transfers(EVENT)
    assert [(m.latency_ns, m.replied_ns - m.began_ns) for m in moved] == [(77, 77)] * 2


@pytest.mark.asyncio
@pytest.mark.parametrize("event", [b"", b"stub_ipc_handle", b"e" * 63, b"e" * 65])
async def test_a_yes_without_an_event_is_a_failure(event: bytes) -> None:
    moved, pool, _ = await transfers(event)
    for error in moved:
        assert isinstance(error, RefusedError)
        assert str(error) == (
            f"replied True, but with an event of {len(event)} bytes, expected 64: a client "
            "cannot know when the data lands"
        )
    assert pool.waited == []


@pytest.mark.asyncio
@pytest.mark.parametrize("event", [b"", EVENT])
async def test_a_no_of_a_gpu_server_is_a_refusal_whatever_its_event(event: bytes) -> None:
    moved, pool, _ = await transfers(event, ok=False)
    assert [str(error) for error in moved] == ["STORE answered False", "RETRIEVE answered False"]
    assert all(isinstance(error, RefusedError) for error in moved)
    assert pool.waited == []


@pytest.mark.asyncio
async def test_an_event_that_tells_nothing_leaves_the_transfer_unknown() -> None:
    moved, _, _ = await transfers(EVENT, trouble="cannot be\nopened")
    for op, error in zip((Op.STORE, Op.RETRIEVE), moved, strict=True):
        assert isinstance(error, CallFailedError)
        assert error.op is op
        assert error.reason == (
            "replied True, but when its data lands is unknown: cannot be opened"
        )


@pytest.mark.asyncio
async def test_a_device_pool_registers_what_it_exports() -> None:
    rpc = answering()
    with ThreadPoolExecutor(1) as executor:
        mode = new_mode(rpc, FarPool(rpc.clock), executor)
        await mode.register()
    await rpc.close()
    assert rpc.calls[0][2] == list(EXPORTED)
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

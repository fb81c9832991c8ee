"""engine_driven over a scripted connection and real memory: copies, and bad plans of a peer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

from benchserver.client.connection import BadAnswerError, NoAnswerError
from benchserver.client.engine import EngineMode
from benchserver.client.scripted import Answer, ScriptedConnection
from benchserver.client.transfer import Moved, RefusedError
from benchserver.clock import VirtualClock
from benchserver.kv.blocks import Window
from benchserver.kv.evidence import EvidenceKind
from benchserver.kv.host.pool import HostPool
from benchserver.kv.host.segment import SharedSegment
from benchserver.kv.verify import verify, verify_canaries
from protocol.dialects import V056
from protocol.errors import RemoteProtocolError
from protocol.inline.reading import decode_tensor_list
from protocol.inline.tensor import InlineTensor
from protocol.inline.writing import encode_tensor_list
from protocol.keys import CacheKey
from protocol.messages import VOID, PoolInfo, RetrievePlan, Slot, StorePlan
from protocol.ops import Op
from shapespec import parse_shape_spec
from tests.benchserver.client.poolfile import NAME, OBJECT_BYTES, SHAPE, PoolFile, slot

pytestmark = pytest.mark.usefixtures("leak_free")

OpenPool = Callable[..., AbstractContextManager[tuple[HostPool, SharedSegment]]]

# Blocks of 2 tokens, chunks of 4: an object is [2 planes][2 layers][4 tokens][4] float16.
SPEC = "(2,12,2,1,4):float16:2"
DIGESTS = (11, 22)
SOURCE = Window(first=1, count=4, block_ids=(3, 1, 4, 2), canaries=())
TARGET = Window(first=5, count=6, block_ids=(9, 6, 8, 7), canaries=(5, 10))
KEY = CacheKey(
    model_name="m",
    world_size=1,
    worker_id=0,
    token_ids=tuple(range(9)),
    start=0,
    end=8,
    request_id="r",
)


def answering(**results: Any) -> ScriptedConnection:
    """Answer each operation with its result, or VOID, after a microsecond."""
    script = {
        op: result if isinstance(result, Exception) else Answer(result=result, after_ns=1000)
        for op in V056.ops
        for result in [results.get(op.name, VOID)]
    }
    return ScriptedConnection(script, V056, clock=VirtualClock())


class Bench:
    """A mode over its pool and the scripted server."""

    def __init__(
        self, pool: HostPool, rpc: ScriptedConnection, executor: ThreadPoolExecutor
    ) -> None:
        self.pool = pool
        self.rpc = rpc
        self.mode = EngineMode(
            rpc,
            pool,
            parse_shape_spec(SPEC),
            instance_id=5,
            model_name="m",
            world_size=1,
            chunk_tokens=4,
            clock=rpc.clock,
            executor=executor,
        )

    async def run(self, name: str, window: Window) -> Moved:
        """Register, store or retrieve once, and close."""
        try:
            await self.mode.register()
            try:
                moved: Moved = await getattr(self.mode, name)(KEY, window)
            finally:
                await self.mode.close()
        finally:
            await self.rpc.close()
        return moved


def took(latency_ns: int, chunks: int) -> Moved:
    """Return a transfer right after a registration that took a microsecond."""
    end_ns = 1000 + latency_ns
    return Moved(began_ns=1000, replied_ns=end_ns, landed_ns=end_ns, chunks=chunks)


@pytest.fixture
def bench(open_pool: OpenPool) -> Iterator[Callable[..., Bench]]:
    """Return a maker of benches over one filled and poisoned pool."""
    with open_pool(SPEC) as (pool, _), ThreadPoolExecutor(1) as executor:
        pool.fill(SOURCE, DIGESTS)
        pool.poison(TARGET)

        def make(*, shm: bool, **results: Any) -> Bench:
            info = PoolInfo(shm_name=NAME if shm else "", pool_bytes=1024 if shm else 0)
            results.setdefault("REGISTER_ENGINE_DRIVEN", info)
            results.setdefault("COMMIT_STORE", True)
            results.setdefault("COMMIT_RETRIEVE", True)
            return Bench(pool, answering(**results), executor)

        yield make


def chunk_of(pool: HostPool, index: int) -> bytes:
    out = np.empty(OBJECT_BYTES, np.uint8)
    pool.gather_chunk(0, SOURCE.block_ids[2 * index : 2 * index + 2], out)
    return out.tobytes()


# Registration


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SPEC, {"num_layers": 2, "hidden_dim_size": 4, "dtype_str": "float16", "use_mla": False}),
        (
            "(1,12,2,1,576):bfloat16:3",
            {"num_layers": 3, "hidden_dim_size": 576, "dtype_str": "bfloat16", "use_mla": True},
        ),
    ],
)
async def test_what_is_registered(open_pool: OpenPool, text: str, expected: dict[str, Any]) -> None:
    rpc = answering(REGISTER_ENGINE_DRIVEN=PoolInfo(shm_name="", pool_bytes=0))

    with open_pool(text) as (pool, _), ThreadPoolExecutor(1) as executor:
        mode = EngineMode(
            rpc,
            pool,
            parse_shape_spec(text),
            instance_id=5,
            model_name="m",
            world_size=3,
            chunk_tokens=4,
            clock=VirtualClock(),
            executor=executor,
        )
        assert mode.transport == ""
        await mode.register()
        assert mode.transport == "inline"
        await mode.unregister(timeout_ns=1_000_000_000)
        await mode.close()
    assert rpc.calls == [
        (
            Op.REGISTER_ENGINE_DRIVEN,
            {
                "instance_id": 5,
                "model_name": "m",
                "world_size": 3,
                "block_size": 2,
                "num_physical_slots": 4,
                **expected,
            },
        ),
        (Op.UNREGISTER_ENGINE_DRIVEN, 5),
    ]


# Over the pool


@pytest.mark.asyncio
async def test_store_copies_the_chunks_that_the_server_wants(
    bench: Callable[..., Bench], server_pool: PoolFile
) -> None:
    plan = StorePlan(inline=False, slots=(slot(512), slot(0)), chunk_indices=(1, 0))
    used = bench(shm=True, PREPARE_STORE=plan)
    assert await used.run("store", SOURCE) == took(2000, 2)
    assert used.mode.transport == "shm"
    assert server_pool.read() == (
        chunk_of(used.pool, 0) + bytes(384) + chunk_of(used.pool, 1) + bytes(384)
    )
    assert used.rpc.calls[1:] == [
        (Op.PREPARE_STORE, KEY, 5),
        (Op.COMMIT_STORE, KEY, 5, b""),
    ]


@pytest.mark.asyncio
async def test_store_of_fewer_chunks_says_so(
    bench: Callable[..., Bench], server_pool: PoolFile
) -> None:
    plan = StorePlan(inline=False, slots=(slot(0),), chunk_indices=(1,))
    used = bench(shm=True, PREPARE_STORE=plan)
    assert (await used.run("store", SOURCE)).chunks == 1
    assert server_pool.read() == chunk_of(used.pool, 1) + bytes(896)


@pytest.mark.asyncio
async def test_store_of_what_is_all_cached_commits_nothing(
    bench: Callable[..., Bench], server_pool: PoolFile
) -> None:
    used = bench(shm=True, PREPARE_STORE=StorePlan(inline=False, slots=(), chunk_indices=()))
    assert await used.run("store", SOURCE) == took(1000, 0)
    assert used.rpc.ops == [Op.REGISTER_ENGINE_DRIVEN, Op.PREPARE_STORE]


BAD_SLOTS = [
    (slot(1000), "slot at 1000 has 128 bytes"),
    (slot(0, length=64), "slot at 0 has 64 bytes"),
    (slot(0, shape=(2, 4, 2, 4)), r"slot of shape \(2, 4, 2, 4\) 'float16'"),
    (slot(0, shape=(2, 2, 4, 1, 4)), r"slot of shape \(2, 2, 4, 1, 4\)"),
    (slot(0, dtype="bfloat16"), r"slot of shape \(2, 2, 4, 4\) 'bfloat16', expected"),
    (slot(0, dtype="\x1b[31m" * 90), r"'\\x1b\[31m"),
]


@pytest.mark.asyncio
@pytest.mark.parametrize(("bad", "reason"), BAD_SLOTS)
async def test_store_into_a_bad_slot_is_not_committed(
    bench: Callable[..., Bench], server_pool: PoolFile, bad: Slot, reason: str
) -> None:
    plan = StorePlan(inline=False, slots=(bad,), chunk_indices=(0,))
    used = bench(shm=True, PREPARE_STORE=plan)
    with pytest.raises(RemoteProtocolError, match=reason):
        await used.run("store", SOURCE)
    assert used.rpc.ops == [Op.REGISTER_ENGINE_DRIVEN, Op.PREPARE_STORE]
    assert server_pool.untouched


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("indices", "error"),
    [((0, 0), RemoteProtocolError), ((0, 2), RemoteProtocolError), ((-1, 0), BadAnswerError)],
)
async def test_bad_chunk_indices(
    bench: Callable[..., Bench],
    server_pool: PoolFile,
    indices: tuple[int, ...],
    error: type[Exception],
) -> None:
    plan = StorePlan(inline=False, slots=(slot(0), slot(128)), chunk_indices=indices)
    used = bench(shm=True, PREPARE_STORE=plan)
    reason = "PREPARE_STORE: .*(chunk indices .* for a range of 2 chunks|of 0 or more)"
    with pytest.raises(error, match=reason):
        await used.run("store", SOURCE)
    assert server_pool.untouched


@pytest.mark.asyncio
async def test_a_commit_that_answers_false(
    bench: Callable[..., Bench], server_pool: PoolFile
) -> None:
    store = StorePlan(inline=False, slots=(slot(0),), chunk_indices=(0,))
    with pytest.raises(RefusedError, match="COMMIT_STORE answered False"):
        await bench(shm=True, PREPARE_STORE=store, COMMIT_STORE=False).run("store", SOURCE)
    retrieve = RetrievePlan(success=True, data=b"", slots=(slot(0), slot(128)))
    with pytest.raises(RefusedError, match="COMMIT_RETRIEVE answered False"):
        await bench(shm=True, PREPARE_RETRIEVE=retrieve, COMMIT_RETRIEVE=False).run(
            "retrieve", TARGET
        )


@pytest.mark.asyncio
async def test_retrieve_copies_every_chunk_to_its_blocks(
    bench: Callable[..., Bench], server_pool: PoolFile
) -> None:
    plan = RetrievePlan(success=True, data=b"", slots=(slot(256), slot(0)))
    used = bench(shm=True, PREPARE_RETRIEVE=plan)
    for offset, index in ((256, 0), (0, 1)):
        server_pool.write(offset, chunk_of(used.pool, index))
    assert await used.run("retrieve", TARGET) == took(2000, 2)
    assert verify(used.pool, TARGET, DIGESTS, ()).kind is EvidenceKind.MATCH
    assert verify_canaries(used.pool, TARGET).kind is EvidenceKind.MATCH
    assert used.rpc.calls[1:] == [
        (Op.PREPARE_RETRIEVE, KEY, 5),
        (Op.COMMIT_RETRIEVE, KEY, 5),
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("slots", "reason"),
    [
        *(((slot(0), bad), reason) for bad, reason in BAD_SLOTS),
        ((slot(0),), "PREPARE_RETRIEVE: 1 chunks came, 2 were asked for"),
        ((slot(0), slot(128), slot(256)), "PREPARE_RETRIEVE: 3 chunks came, 2 were asked for"),
    ],
)
async def test_a_bad_plan_copies_nothing_and_gives_the_locks_back(
    bench: Callable[..., Bench], server_pool: PoolFile, slots: tuple[Slot, ...], reason: str
) -> None:
    used = bench(shm=True, PREPARE_RETRIEVE=RetrievePlan(success=True, data=b"", slots=slots))
    with pytest.raises(RemoteProtocolError, match=reason):
        await used.run("retrieve", TARGET)
    assert used.rpc.ops[-1] is Op.COMMIT_RETRIEVE
    assert verify(used.pool, TARGET, DIGESTS, ()).kind is EvidenceKind.UNTOUCHED


@pytest.mark.asyncio
async def test_no_server_can_be_told_to_skip(bench: Callable[..., Bench]) -> None:
    used = bench(shm=False)
    with pytest.raises(ValueError, match="the client copies"):
        await used.mode.retrieve(KEY, TARGET, skip_tokens=1)
    assert used.rpc.ops == []


@pytest.mark.asyncio
async def test_a_retrieve_that_the_server_refuses_is_not_committed(
    bench: Callable[..., Bench],
) -> None:
    plan = RetrievePlan(success=False, data=b"", slots=())
    used = bench(shm=False, PREPARE_RETRIEVE=plan)
    with pytest.raises(RefusedError, match="PREPARE_RETRIEVE answered success=false"):
        await used.run("retrieve", TARGET)
    assert used.rpc.ops == [Op.REGISTER_ENGINE_DRIVEN, Op.PREPARE_RETRIEVE]


@pytest.mark.asyncio
async def test_no_answer_goes_through(bench: Callable[..., Bench]) -> None:
    used = bench(shm=False, PREPARE_STORE=NoAnswerError(Op.PREPARE_STORE, "no answer"))
    with pytest.raises(NoAnswerError):
        await used.run("store", SOURCE)


# Inline


def inline(*chunks: bytes, dtype: str = "float16", shape: tuple[int, ...] = SHAPE) -> bytes:
    return encode_tensor_list([InlineTensor(dtype, shape, chunk) for chunk in chunks])


@pytest.mark.asyncio
async def test_store_inline_sends_every_chunk(bench: Callable[..., Bench]) -> None:
    plan = StorePlan(inline=True, slots=(), chunk_indices=())
    used = bench(shm=False, PREPARE_STORE=plan)
    assert await used.run("store", SOURCE) == took(2000, 2)
    assert used.mode.transport == "inline"
    op, key, instance, data = used.rpc.calls[-1]
    assert (op, key, instance) == (Op.COMMIT_STORE, KEY, 5)
    sent = decode_tensor_list(data)
    assert [(tensor.dtype, tensor.shape) for tensor in sent] == [("float16", SHAPE)] * 2
    assert [bytes(tensor.data) for tensor in sent] == [chunk_of(used.pool, n) for n in (0, 1)]


@pytest.mark.asyncio
async def test_retrieve_inline(bench: Callable[..., Bench]) -> None:
    used = bench(shm=False)
    data = inline(chunk_of(used.pool, 0), chunk_of(used.pool, 1))
    plan = RetrievePlan(success=True, data=data, slots=())
    used = bench(shm=False, PREPARE_RETRIEVE=plan)
    assert (await used.run("retrieve", TARGET)).chunks == 2
    assert verify(used.pool, TARGET, DIGESTS, ()).kind is EvidenceKind.MATCH


ZEROS = bytes(OBJECT_BYTES)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (inline(ZEROS), "1 chunks came, 2 were asked for"),
        (inline(ZEROS, ZEROS, ZEROS), "3 chunks came, 2 were asked for"),
        (inline(ZEROS, ZEROS, shape=(2, 4, 2, 4)), r"inline tensor of shape \(2, 4, 2, 4\)"),
        (inline(ZEROS, ZEROS, dtype="bfloat16"), "bfloat16, expected"),
        (inline(), "0 chunks came"),
        (b"", "inline tensor"),
        (b"\x80\x04.", "inline tensor"),
        (b"not a pickle", "inline tensor"),
        (inline(ZEROS, ZEROS)[:-9], "inline tensor"),
    ],
)
async def test_bad_inline_data(bench: Callable[..., Bench], data: bytes, reason: str) -> None:
    used = bench(shm=False, PREPARE_RETRIEVE=RetrievePlan(success=True, data=data, slots=()))
    with pytest.raises(RemoteProtocolError, match=reason):
        await used.run("retrieve", TARGET)
    assert used.rpc.ops[-1] is Op.COMMIT_RETRIEVE
    assert verify(used.pool, TARGET, DIGESTS, ()).kind is EvidenceKind.UNTOUCHED


@pytest.mark.asyncio
async def test_slots_without_a_pool(bench: Callable[..., Bench]) -> None:
    reason = "the server named slots but no pool at registration"
    store = StorePlan(inline=False, slots=(slot(0),), chunk_indices=(0,))
    with pytest.raises(RemoteProtocolError, match=reason):
        await bench(shm=False, PREPARE_STORE=store).run("store", SOURCE)
    retrieve = RetrievePlan(success=True, data=b"", slots=(slot(0), slot(128)))
    with pytest.raises(RemoteProtocolError, match=reason):
        await bench(shm=False, PREPARE_RETRIEVE=retrieve).run("retrieve", TARGET)

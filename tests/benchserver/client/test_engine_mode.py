"""engine_driven over a scripted connection and real memory: copies, and bad plans of a peer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

from benchserver.client.connection import BadAnswerError, NoAnswerError
from benchserver.client.engine_mode import EngineMode, ServerPool
from benchserver.client.scripted import Answer, ScriptedConnection
from benchserver.client.transfer import Moved, RefusedError
from benchserver.clock import VirtualClock
from benchserver.errors import FatalError
from benchserver.kv.blocks import Window
from benchserver.kv.evidence import EvidenceKind
from benchserver.kv.host.pool import HostPool
from benchserver.kv.host.segment import SharedSegment
from benchserver.kv.verify import verify, verify_canaries
from benchserver.shmnames import SHM_DIR
from protocol.dialects import V056
from protocol.errors import RemoteProtocolError
from protocol.inline.reading import decode_tensor_list
from protocol.inline.tensor import InlineTensor
from protocol.inline.writing import encode_tensor_list
from protocol.keys import CacheKey
from protocol.messages import VOID, PoolInfo, RetrievePlan, Slot, StorePlan
from protocol.ops import Op
from shapespec import parse_shape_spec

pytestmark = pytest.mark.usefixtures("leak_free")

OpenPool = Callable[..., AbstractContextManager[tuple[HostPool, SharedSegment]]]

NAME = f"bench_test_{os.getpid()}_pool"
# Blocks of 2 tokens, chunks of 4: an object is [2 planes][2 layers][4 tokens][4] float16.
SPEC = "(2,12,2,1,4):float16:2"
SHAPE, OBJECT_BYTES = (2, 2, 4, 4), 128
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


def slot(offset: int, **changes: Any) -> Slot:
    fields: dict[str, Any] = {"length": OBJECT_BYTES, "shape": SHAPE, "dtype": "float16"}
    return Slot(offset=offset, **{**fields, **changes})


def answering(**results: Any) -> ScriptedConnection:
    """Answer each operation with its result, or VOID, after a microsecond."""
    script = {
        op: result if isinstance(result, Exception) else Answer(result=result, after_ns=1000)
        for op in V056.ops
        for result in [results.get(op.name, VOID)]
    }
    return ScriptedConnection(script, V056, clock=VirtualClock())


class PoolFile:
    """The server's pool of 1024 bytes, seen through its file in /dev/shm."""

    def __init__(self) -> None:
        (SHM_DIR / NAME).write_bytes(bytes(1024))

    def read(self) -> bytes:
        return (SHM_DIR / NAME).read_bytes()

    def write(self, offset: int, data: bytes) -> None:
        with (SHM_DIR / NAME).open("r+b") as file:
            file.seek(offset)
            file.write(data)

    @property
    def untouched(self) -> bool:
        return self.read() == bytes(1024)


@pytest.fixture
def server_pool() -> Iterator[PoolFile]:
    """Make a pool under NAME, as a server would."""
    yield PoolFile()
    (SHM_DIR / NAME).unlink()


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


@pytest.mark.parametrize("name", [NAME, "/" + NAME], ids=["plain", "posix"])
def test_a_pool_is_mapped_by_name(server_pool: PoolFile, name: str) -> None:
    pool = ServerPool(PoolInfo(shm_name=name, pool_bytes=512))
    pool.slot(slot(384), OBJECT_BYTES)[:] = 7
    pool.close()
    assert server_pool.read() == bytes(384) + b"\7" * 128 + bytes(512)
    with pytest.raises(RemoteProtocolError, match="the pool is closed"):
        pool.slot(slot(0), OBJECT_BYTES)


@pytest.mark.parametrize(
    "name",
    [
        ".",
        "..",
        "/",
        "/..",
        pytest.param("//" + NAME, id="two slashes"),
        pytest.param("../shm/" + NAME, id="a way round"),
        "../../etc/passwd",
        "/etc/passwd",
        "a/b",
        pytest.param(NAME + "/", id="a folder"),
        pytest.param(NAME + "\n", id="two lines"),
        pytest.param(NAME + "\0", id="a null"),
        "n" * 201,
        "pöol",
        "\x1b[31m",
    ],
)
def test_names_with_tricks_are_refused(server_pool: PoolFile, name: str) -> None:
    with pytest.raises(FatalError, match=r"^engine_driven: the server named its pool '") as caught:
        ServerPool(PoolInfo(shm_name=name, pool_bytes=512))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


def test_a_pool_that_is_not_there() -> None:
    reason = f"cannot map the server's pool /dev/shm/{NAME}: No such file or directory; the server"
    with pytest.raises(FatalError, match=reason):
        ServerPool(PoolInfo(shm_name=NAME, pool_bytes=512))


def test_a_link_is_not_followed(tmp_path: Any) -> None:
    (tmp_path / "mine").write_bytes(bytes(512))
    (SHM_DIR / NAME).symlink_to(tmp_path / "mine")
    try:
        with pytest.raises(FatalError, match="cannot map the server's pool"):
            ServerPool(PoolInfo(shm_name=NAME, pool_bytes=512))
    finally:
        (SHM_DIR / NAME).unlink()


@pytest.mark.parametrize("said", [0, 1025, 1 << 62])
def test_a_pool_of_another_size_is_refused(server_pool: PoolFile, said: int) -> None:
    with pytest.raises(FatalError, match=f"has {said} bytes, the segment has 1024"):
        ServerPool(PoolInfo(shm_name=NAME, pool_bytes=said))


@pytest.mark.parametrize(
    ("offset", "length"), [(897, 128), (1024, 128), (1 << 60, 128), (0, 127), (0, 129), (0, 0)]
)
def test_slots_outside_the_pool_or_of_another_size(
    server_pool: PoolFile, offset: int, length: int
) -> None:
    pool = ServerPool(PoolInfo(shm_name=NAME, pool_bytes=1024))
    with pytest.raises(RemoteProtocolError, match=f"slot at {offset} has {length} bytes"):
        pool.slot(slot(offset, length=length), OBJECT_BYTES)
    assert pool.slot(slot(896), OBJECT_BYTES).size == 128
    pool.close()


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

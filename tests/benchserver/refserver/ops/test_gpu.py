"""What the server does for GPU clients, with a client whose memory and stream are stand-ins."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from benchserver.clock import NS_PER_S
from benchserver.refserver.gpu import instance as cudainstance
from benchserver.refserver.gpu.instance import CudaInstance
from benchserver.refserver.gpu.runtime import MAX_HASHERS, CudaRuntime
from benchserver.refserver.gpu.watch import Watcher
from benchserver.refserver.ops.mapped import MappedOps
from benchserver.refserver.refusal import RefusalError
from protocol.handles import CPU_EVENT_STUB
from protocol.messages import VOID, TransferResult
from protocol.ops import Op
from tests.cudastage import (
    EVENT,
    FOREIGN_EVENT,
    HostStream,
    cpu_instance,
    cuda_handle,
    torch_tensors,
)
from tests.faultstage import CHUNK, FROM, SHAPE, TO, Stage, client_memory, empty_stage, key

pytestmark = pytest.mark.torch

SIZE = int(np.prod(SHAPE))
LAYERS = 2
WITHIN_S, POLL_S = 10.0, 0.001


@dataclass
class Client:
    """Two ranks of one client, on a GPU or on the host, with the same content."""

    stage: Stage
    memories: list[Any]
    event: bytes
    streams: list[HostStream] = field(default_factory=list)

    def pages(self, rank: int) -> Any:
        """Return a rank's memory as [layer][plane][block] ..."""
        return self.memories[rank].reshape(LAYERS, *SHAPE)

    async def settle(self) -> None:
        """Run what the server does after its replies."""
        while self.stage.later:
            await self.stage.later.pop(0)

    async def store(self, name: str, rank: int = 0) -> TransferResult:
        args = (key(name, rank), rank, [FROM], self.event)
        result: TransferResult = await self.stage.call(Op.STORE, *args)
        return result

    async def retrieve(self, name: str, rank: int = 0, skip: int = 0) -> TransferResult:
        args = (key(name, rank), rank, [TO], self.event, skip)
        result: TransferResult = await self.stage.call(Op.RETRIEVE, *args)
        return result

    def rewrite(self, seed: int) -> None:
        """Put other content into the source blocks of all ranks, and poison where it goes."""
        rng = np.random.default_rng(seed)
        for rank in range(2):
            pages = self.pages(rank)
            pages[:, :, FROM] = rng.integers(0, 1 << 16, pages[:, :, FROM].shape)
            pages[:, :, TO] = 0xA5A5

    def counts(self) -> Any:
        return self.stage.core.cache.counts(self.stage.core.clock.now_ns())


@contextmanager
def gpu_client() -> Iterator[Client]:
    with empty_stage() as stage:
        memories = [
            np.random.default_rng(seed).integers(0, 1 << 16, SIZE * LAYERS).astype(np.uint16)
            for seed in (1, 2)
        ]
        client = Client(stage, memories, EVENT)
        nbytes = 2 * SIZE * LAYERS
        handles = [
            cuda_handle(SHAPE, offset=layer * SIZE, storage_bytes=nbytes) for layer in range(LAYERS)
        ]
        for rank in range(2):
            instance, stream = cpu_instance(
                memories[rank],
                handles,
                chunk_size=CHUNK,
                world_size=2,
                runtime=stage.core.cuda,
            )
            stage.core.registry.mapped[rank] = instance
            client.streams.append(stream)
        try:
            yield client
        finally:
            stage.core.cuda.close()


@asynccontextmanager
async def host_client() -> AsyncIterator[Client]:
    with empty_stage() as stage, client_memory(1) as first, client_memory(2) as second:
        client = Client(stage, [first[1][0].base, second[1][0].base], CPU_EVENT_STUB)
        for rank, (handles, _) in enumerate((first, second)):
            hints = {"kv_layout": "NHD"}
            args: tuple[Any, ...] = (rank, handles, "m", 2, "vllm", hints, [])
            assert await stage.call(Op.REGISTER_KV_CACHE, *args) is VOID
        try:
            yield client
        finally:
            client.memories.clear()


@pytest.fixture
def client() -> Iterator[Client]:
    """Give a client on a GPU."""
    with gpu_client() as client:
        yield client


@pytest.mark.asyncio
async def test_a_store_is_answered_before_it_is_visible_and_retrieved_after(client: Client) -> None:
    for rank in range(2):
        client.streams[rank].busy = True
        reply = await client.store("a", rank)
        assert (reply.ok, len(reply.event)) == (True, 64)
        assert client.streams[rank].waited == [EVENT]
    assert await client.stage.lookup("a") == 0
    assert client.counts().write_locked == 4
    for stream in client.streams:
        stream.busy = False
    await client.settle()
    assert client.counts().write_locked == 0
    assert await client.stage.lookup("a") == 2
    for rank in range(2):
        reply = await client.retrieve("a", rank)
        assert (reply.ok, len(reply.event)) == (True, 64)
        pages = client.pages(rank)
        assert np.array_equal(pages[:, :, TO], pages[:, :, FROM])
    assert client.counts().read_locked == 4
    await client.settle()
    assert client.counts().read_locked == 0


@pytest.mark.asyncio
async def test_skipped_tokens_stay_as_they_are(client: Client) -> None:
    for rank in range(2):
        await client.store("a", rank)
    await client.settle()
    assert await client.stage.lookup("a") == 2
    client.pages(0)[:, :, TO] = 7
    assert (await client.retrieve("a", 0, skip=CHUNK + 2)).ok
    pages = client.pages(0)
    assert (pages[:, :, TO[:3]] == 7).all()
    assert np.array_equal(pages[:, :, TO[3:]], pages[:, :, FROM[3:]])


@pytest.mark.asyncio
async def test_with_nothing_to_do_the_answer_carries_an_event_all_the_same(client: Client) -> None:
    await client.store("a")
    await client.settle()
    again = await client.store("a")
    assert (again.ok, len(again.event)) == (True, 64)
    client.stage.switch("full_l1")
    full = await client.store("b")
    assert (full.ok, len(full.event)) == (True, 64)
    assert not client.stage.later
    assert any("no room" in line for line in client.stage.lines)


@pytest.mark.asyncio
async def test_a_failure_without_work_on_the_device_has_no_event(client: Client) -> None:
    call = client.stage.call
    short = await call(Op.STORE, key("a", 0), 0, [FROM[:1]], EVENT)
    outside = await call(Op.STORE, key("a", 0), 0, [[1, 2, 3, 99]], EVENT)
    missing = await client.retrieve("a")
    assert short == outside == missing == TransferResult(event=b"", ok=False)
    assert not client.streams[0].waited


@pytest.mark.asyncio
@pytest.mark.parametrize("event", [b"", CPU_EVENT_STUB, EVENT + b"x", FOREIGN_EVENT])
async def test_a_request_with_a_useless_event_gets_no_answer(client: Client, event: bytes) -> None:
    client.event = event
    with pytest.raises(RefusalError, match=r"^an event handle of \d+ bytes|cannot be opened"):
        await client.store("a")
    assert client.counts().objects == 0
    client.event = EVENT
    for rank in range(2):
        await client.store("a", rank)
    await client.settle()
    assert await client.stage.lookup("a") == 2
    client.event = event
    with pytest.raises(RefusalError):
        await client.retrieve("a")
    await client.stage.call(Op.FREE_LOOKUP_LOCKS, key("a", None), 2)
    assert client.counts().read_locked == 0
    assert not client.stage.later


@pytest.mark.asyncio
async def test_a_store_that_never_ends_is_dropped_and_its_memory_stays_taken(
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def at_once(_: Any, is_done: Callable[[], bool], **__: Any) -> bool:
        return is_done()

    monkeypatch.setattr(Watcher, "ended", at_once)

    def note_hold(client: Client, dropped: asyncio.Event) -> Callable[[Any], None]:
        hold = client.stage.core.cache.hold

        def noted(slots: Any) -> None:
            hold(slots)
            # What is held is dropped in the same step, before anybody else runs.
            dropped.set()

        return noted

    dropped = asyncio.Event()
    used_bytes = client.counts().used_bytes
    client.streams[0].busy = True
    assert (await client.store("a")).ok
    taken = client.counts().used_bytes
    monkeypatch.setattr(client.stage.core.cache, "hold", note_hold(client, dropped))
    late = asyncio.ensure_future(client.settle())
    await dropped.wait()
    assert client.counts().objects == 0
    assert client.counts().used_bytes == taken > used_bytes
    assert client.stage.core.registry.mapped[0].uses.count == 1
    client.streams[0].busy = False
    await late
    assert client.counts().used_bytes == used_bytes
    assert client.stage.core.registry.mapped[0].uses.count == 0
    assert any(line.count("STORE: not done on the GPU 30 s") for line in client.stage.lines)


@pytest.mark.asyncio
async def test_a_device_that_fails_after_the_reply_costs_the_store_and_no_more(
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*_: Any, **__: Any) -> bool:
        raise RefusalError("an event of this server: CUDA error: unspecified launch failure")

    monkeypatch.setattr(Watcher, "ended", fail)

    assert (await client.store("a")).ok
    await client.settle()
    assert client.counts().objects == 0
    assert any("STORE: failed on the GPU" in line for line in client.stage.lines)


@pytest.mark.asyncio
async def test_memory_is_unmapped_when_the_last_transfer_has_ended(client: Client) -> None:
    gone = threading.Event()
    memory = np.zeros(SIZE, dtype=np.uint16)
    instance, stream = cpu_instance(memory, [cuda_handle(SHAPE)], chunk_size=CHUNK, unmap=gone.set)
    client.stage.core.registry.mapped[7] = instance
    reply = await client.stage.call(Op.STORE, key("a", 0), 7, [FROM], EVENT)
    assert reply.ok
    assert await client.stage.call(Op.UNREGISTER_KV_CACHE, 7) is VOID
    assert not gone.is_set()
    assert 7 not in client.stage.core.registry.mapped
    await client.settle()
    assert gone.wait(WITHIN_S)
    assert stream.is_idle()


def test_memory_that_a_stream_may_still_touch_stays_mapped() -> None:
    gone: list[int] = []
    memory, runtime = np.zeros(SIZE, dtype=np.uint16), CudaRuntime()
    leaving = runtime.leaving

    def instance_of(number: int) -> tuple[CudaInstance, HostStream]:
        return cpu_instance(
            memory,
            [cuda_handle(SHAPE)],
            chunk_size=CHUNK,
            unmap=lambda: gone.append(number),
            runtime=runtime,
        )

    instance, stream = instance_of(1)
    stream.busy = True
    instance.uses.close()
    other, _ = instance_of(2)
    other.uses.close()
    other.uses.close()
    ended(other)
    assert gone == [2]
    assert leaving.count == 1
    stream.busy = False
    leaving.retry()
    ended(instance)
    assert gone == [2, 1]
    assert leaving.close(lambda: gone.append(3), WITHIN_S)
    assert gone == [2, 1, 3]


def ended(instance: CudaInstance) -> None:
    assert instance.gone is not None
    instance.gone.result(WITHIN_S)


@pytest.mark.asyncio
async def test_digests_wait_for_what_is_under_way_and_no_longer_than_the_server_runs(
    client: Client,
) -> None:
    core, stream = client.stage.core, client.streams[0]
    instance = core.registry.mapped[0]
    assert isinstance(instance, CudaInstance)

    async def digest() -> int:
        return await instance.digests(lambda layers, _, size: len(layers) + size, [1], 2)

    assert await digest() == LAYERS + 2
    stream.busy = True
    # Each has a thread of its own to wait in, or none: all others are served.
    waiting = [asyncio.ensure_future(digest()) for _ in range(2 * MAX_HASHERS)]
    await asyncio.sleep(0.01)
    other = core.registry.mapped[1]
    assert isinstance(other, CudaInstance)
    assert await asyncio.wait_for(other.digests(lambda layers, _, size: size, [1], 2), WITHIN_S)
    core.cuda.stop_waiting()
    for answer in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(answer, RefusalError)
        assert str(answer).startswith("the GPU is still busy")


@pytest.mark.asyncio
async def test_stores_that_never_end_keep_nobody_else_waiting(client: Client) -> None:
    client.streams[0].busy = True
    for number in range(40):
        assert (await client.store(chr(ord("A") + number), 0)).ok
    late = [asyncio.ensure_future(coroutine) for coroutine in client.stage.later]
    client.stage.later.clear()
    await asyncio.sleep(0.01)
    assert (await client.store("a", 1)).ok
    await asyncio.wait_for(client.settle(), WITHIN_S)
    assert client.counts().write_locked == 40 * 2
    client.streams[0].busy = False
    await asyncio.gather(*late)
    assert client.counts().write_locked == 0


@pytest.mark.asyncio
async def test_a_call_that_is_stuck_in_cuda_keeps_nobody_else_waiting(client: Client) -> None:
    release = threading.Event()

    stream = client.streams[0]
    plainly = stream.wait_for

    def stuck(handle: bytes) -> None:
        assert release.wait(WITHIN_S)
        plainly(handle)

    stream.wait_for = stuck  # type: ignore[method-assign]
    names = [chr(ord("A") + number) for number in range(40)]
    stores = [asyncio.ensure_future(client.store(name, 0)) for name in names]
    await asyncio.sleep(0.01)
    assert (await asyncio.wait_for(client.store("a", 1), WITHIN_S)).ok
    await client.settle()
    release.set()
    assert all(reply.ok for reply in await asyncio.gather(*stores))
    await client.settle()


@pytest.mark.asyncio
async def test_a_client_has_so_many_transfers_under_way_at_most(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cudainstance, "MAX_UNDER_WAY", 3)

    for name in "xy":
        await client.store(name, 0)
    with pytest.raises(RefusalError, match=r"^a client has 3 transfers under way$"):
        await client.store("z", 0)
    assert client.counts().write_locked == 4
    await client.settle()
    assert (await client.store("z", 0)).ok
    await client.settle()


@pytest.mark.asyncio
async def test_a_client_whose_memory_cannot_be_unmapped_yet_is_answered_all_the_same(
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cudainstance, "LEAVE_WITHIN_NS", NS_PER_S // 20)

    instance = client.stage.core.registry.mapped[0]
    assert isinstance(instance, CudaInstance)
    client.streams[0].busy = True
    assert await client.stage.call(Op.UNREGISTER_KV_CACHE, 0) is VOID
    assert any("GPU memory stays mapped" in line for line in client.stage.lines)
    assert client.stage.core.cuda.leaving.count == 1
    client.streams[0].busy = False
    client.stage.core.cuda.leaving.retry()
    ended(instance)


class Memory:
    """What a runtime maps."""

    def __init__(self, tensors: list[Any]) -> None:
        self.tensors = tensors

    def close(self) -> None:
        self.tensors.clear()


class Runtime(CudaRuntime):
    """Opens clients' memory on the host."""

    def __init__(self, memory: Any) -> None:
        super().__init__()
        self.memory = memory
        self.opened: list[Any] = []
        self.unmapped: list[Any] = []

    def load(self, arena: Any) -> str:
        return "" if self.opened else "L1 is not pinned"

    def open(self, handles: Any) -> Any:
        tensors = torch_tensors(self.memory, handles)
        if len(handles) > LAYERS:
            tensors[0] = tensors[0][:, :1]
            tensors[1] = tensors[1].double()
        memory: Any = Memory(tensors)
        stream: Any = HostStream()
        self.opened.append(memory)
        self._mapped[memory] = stream
        return memory, stream

    def unmap(self, memory: Any) -> None:
        super().unmap(memory)
        self.unmapped.append(memory)


async def all_unmapped(runtime: Runtime, count: int) -> None:
    """Wait until so many were unmapped, which is done beside the event loop."""
    for _ in range(round(WITHIN_S / POLL_S)):
        if len(runtime.unmapped) >= count:
            break
        await asyncio.sleep(POLL_S)
    assert len(runtime.unmapped) == count


def registration(instance_id: int, layers: int = LAYERS) -> tuple[Any, ...]:
    handles = [
        cuda_handle(SHAPE, offset=layer * SIZE, storage_bytes=2 * SIZE * layers)
        for layer in range(layers)
    ]
    return instance_id, handles, "m", 2, "vllm", {"kv_layout": "NHD"}, []


@asynccontextmanager
async def with_runtime(layers: int = LAYERS) -> AsyncIterator[tuple[Stage, Runtime]]:
    """A server that opens clients' memory on the host."""
    with empty_stage() as stage:
        runtime = Runtime(np.arange(SIZE * layers, dtype=np.uint16))
        core = replace(stage.core, cuda=runtime)
        stage.handlers.update(MappedOps(core, stage.later.append).table())
        stage.core = core
        yield stage, runtime
        runtime.close()


@pytest_asyncio.fixture
async def served() -> AsyncIterator[tuple[Stage, Runtime]]:
    """Give a server that opens the memory of clients with the usual layers."""
    async with with_runtime() as served:
        yield served


@pytest.fixture
def stage(served: tuple[Stage, Runtime]) -> Stage:
    """Give that server's stage."""
    return served[0]


@pytest.fixture
def runtime(served: tuple[Stage, Runtime]) -> Runtime:
    """Give what opens the memory of its clients."""
    return served[1]


@pytest.mark.asyncio
async def test_a_gpu_client_registers_once_and_is_unmapped_when_it_leaves(
    stage: Stage, runtime: Runtime
) -> None:
    before = runtime.memory.copy()
    for _ in range(2):
        assert await stage.call(Op.REGISTER_KV_CACHE, *registration(1)) is VOID
    assert len(runtime.opened) == 1
    assert stage.lines == ["embedded server: L1 is not pinned"]
    instance = stage.core.registry.mapped[1]
    assert isinstance(instance, CudaInstance)
    assert [instance.blocks.read(layer, [0]).dtype for layer in range(LAYERS)] == ["u2", "u2"]
    assert (await stage.call(Op.STORE, key("a", 0), 1, [FROM], EVENT)).ok
    assert np.array_equal(runtime.memory, before)
    while stage.later:
        await stage.later.pop()
    assert await stage.call(Op.UNREGISTER_KV_CACHE, 1) is VOID
    assert runtime.unmapped == runtime.opened
    assert not stage.core.registry.mapped


@pytest.mark.asyncio
async def test_of_two_registrations_at_once_one_stays(stage: Stage, runtime: Runtime) -> None:
    calls = [stage.call(Op.REGISTER_KV_CACHE, *registration(1)) for _ in range(2)]
    assert await asyncio.gather(*calls) == [VOID, VOID]
    assert len(runtime.opened) == 2
    await all_unmapped(runtime, 1)
    (kept,) = [memory for memory in runtime.opened if memory is not runtime.unmapped[0]]
    await stage.call(Op.UNREGISTER_KV_CACHE, 1)
    assert runtime.unmapped[1] is kept


@pytest.mark.asyncio
async def test_a_registration_for_which_there_is_no_room_any_more_is_not_acknowledged(
    stage: Stage,
    runtime: Runtime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchserver.refserver.registry.MAX_INSTANCES", 1)

    calls = [stage.call(Op.REGISTER_KV_CACHE, *registration(i)) for i in (1, 2)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert sorted(isinstance(answer, RefusalError) for answer in answers) == [False, True]
    assert len(runtime.opened) == 2
    await all_unmapped(runtime, 1)
    assert len(stage.core.registry.mapped) == 1


@pytest.mark.asyncio
async def test_memory_that_turns_out_to_be_useless_is_unmapped() -> None:
    async with with_runtime(layers=LAYERS + 1) as (stage, runtime):
        args = registration(1, layers=LAYERS + 1)
        with pytest.raises(
            RefusalError, match=r"instance 1: (the KV tensors cannot be used|kernels on)"
        ):
            await stage.call(Op.REGISTER_KV_CACHE, *args)
        await all_unmapped(runtime, 1)
        assert runtime.unmapped == runtime.opened
        assert not stage.core.registry.mapped


@pytest.mark.asyncio
async def test_a_silent_gpu_client_is_unmapped_with_the_others(
    stage: Stage, runtime: Runtime
) -> None:
    await stage.call(Op.REGISTER_KV_CACHE, *registration(1))
    registry = stage.core.registry
    assert registry.stale(3600 * NS_PER_S) == ([], [])
    assert registry.stale(3601 * NS_PER_S) == ([1], [])
    registry.remove_mapped(1)
    await all_unmapped(runtime, 1)
    assert runtime.unmapped == runtime.opened


FAULTS = [
    "noop_retrieve",
    "half_retrieve",
    "flip_byte:layer=1",
    "flip_byte:layer=0,rank=1,chunk=0",
    "swap_chunks",
    "layer_mixup",
    "plane_mixup",
    "rank_mixup",
    "stale_data",
    "canary_overwrite",
    "source_overwrite",
    "ignored_skip",
    "refuse_retrieve",
    "refuse_store",
    "drop_store",
    "stuck_store",
    "early_ack",
    "late_read",
    "lost_chunk",
    "full_l1",
    "clear_between",
]


async def two_sequences(client: Client, fault: str) -> dict[str, Any]:
    """Store and retrieve two sequences on both ranks under a fault; return all that it shows."""
    client.stage.switch(fault)
    shown: dict[str, Any] = {}
    for name in ("a", "b"):
        client.rewrite(ord(name))
        for rank in range(2):
            stored = await client.store(name, rank)
            shown[f"store {name} {rank}"] = stored.ok, bool(stored.event)
        await client.settle()
        shown[f"hits {name}"] = await client.stage.lookup(name)
        for rank in range(2):
            # Where the other chunk's first block is skipped too.
            restored = await client.retrieve(name, rank, skip=CHUNK // 2)
            shown[f"retrieve {name} {rank}"] = restored.ok, restored.ok and bool(restored.event)
        await client.settle()
        shown[f"memory {name}"] = [client.pages(rank).copy() for rank in range(2)]
        shown[f"locks {name}"] = client.counts().read_locked
    shown["fired"] = client.stage.fired()
    return shown


@pytest.mark.asyncio
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_does_on_a_gpu_what_it_does_on_the_host(fault: str) -> None:
    async with host_client() as client:
        on_host = await two_sequences(client, fault)
    with gpu_client() as client:
        on_gpu = await two_sequences(client, fault)
    assert on_host.keys() == on_gpu.keys()
    for name, value in on_host.items():
        assert np.array_equal(on_gpu[name], value), name
    assert sum(on_host["fired"]) > 0


@pytest.mark.asyncio
@pytest.mark.parametrize("fault", ["drop_store", "stuck_store", "late_read"])
async def test_an_early_acknowledgement_carries_an_event_that_has_completed(
    client: Client, fault: str
) -> None:
    client.stage.switch(fault)
    reply = await client.store("a")
    assert (reply.ok, len(reply.event)) == (True, 64)
    assert int.from_bytes(reply.event, "big") == client.streams[0].recorded == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("op", [Op.STORE, Op.RETRIEVE])
async def test_transfers_of_the_wrong_shape_are_refused_as_on_the_host(
    client: Client, op: Op
) -> None:
    rest = () if op is Op.STORE else (0,)
    with pytest.raises(RefusalError, match="2 block id lists for 1 groups"):
        await client.stage.call(op, key("a", 0), 0, [FROM, FROM], EVENT, *rest)
    unknown = await client.stage.call(op, key("a", 0), 99, [FROM], b"", *rest)
    assert unknown == TransferResult(event=b"", ok=False)


@pytest.mark.asyncio
async def test_the_status_of_a_gpu_client_is_that_of_any_other() -> None:
    from benchserver.refserver.front.status import status_document

    async with host_client() as client:
        on_host = status_document(client.stage.core)
    with gpu_client() as client:
        assert isinstance(client.stage.core.registry.mapped[0], CudaInstance)
        on_gpu = status_document(client.stage.core)
    assert on_gpu == on_host
    assert on_gpu["registered_gpu_ids"] == [0, 1]

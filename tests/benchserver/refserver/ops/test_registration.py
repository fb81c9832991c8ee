"""Registrations of GPU clients: once, refused, undone."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from benchserver.clock import NS_PER_S
from benchserver.refserver.gpu.instance import CudaInstance
from benchserver.refserver.gpu.runtime import CudaRuntime
from benchserver.refserver.ops.mapped import MappedOps
from benchserver.refserver.ops.registration import on_gpu
from benchserver.refserver.refusal import RefusalError
from protocol.handles import CpuShmHandle, KvHandle
from protocol.messages import VOID
from protocol.ops import Op
from tests.benchserver.refserver.gpu.clients import (
    LAYERS,
    SIZE,
    WITHIN_S,
)
from tests.benchserver.refserver.gpu.described import CUDA, RAW
from tests.cudastage import (
    EVENT,
    HostStream,
    cuda_handle,
    torch_tensors,
)
from tests.faultstage import FROM, SHAPE, Stage, client_memory, empty_stage, key


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
        self.one_more = threading.Semaphore(0)

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
        self.one_more.release()


async def all_unmapped(runtime: Runtime, count: int) -> None:
    """Wait until so many were unmapped, which is done beside the event loop."""
    while len(runtime.unmapped) < count:
        assert await asyncio.to_thread(runtime.one_more.acquire, timeout=WITHIN_S)
    assert len(runtime.unmapped) == count


def registration_of(instance_id: int, layers: int = LAYERS) -> tuple[Any, ...]:
    handles = [
        cuda_handle(SHAPE, offset=layer * SIZE, storage_bytes=2 * SIZE * layers)
        for layer in range(layers)
    ]
    return registration(instance_id, handles)


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


@pytest.mark.torch
@pytest.mark.asyncio
async def test_a_gpu_client_registers_once_and_is_unmapped_when_it_leaves(
    stage: Stage, runtime: Runtime
) -> None:
    before = runtime.memory.copy()
    for _ in range(2):
        assert await stage.call(Op.REGISTER_KV_CACHE, *registration_of(1)) is VOID
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


@pytest.mark.torch
@pytest.mark.asyncio
async def test_of_two_registrations_at_once_one_stays(stage: Stage, runtime: Runtime) -> None:
    calls = [stage.call(Op.REGISTER_KV_CACHE, *registration_of(1)) for _ in range(2)]
    assert await asyncio.gather(*calls) == [VOID, VOID]
    assert len(runtime.opened) == 2
    await all_unmapped(runtime, 1)
    (kept,) = [memory for memory in runtime.opened if memory is not runtime.unmapped[0]]
    await stage.call(Op.UNREGISTER_KV_CACHE, 1)
    assert runtime.unmapped[1] is kept


@pytest.mark.torch
@pytest.mark.asyncio
async def test_a_registration_for_which_there_is_no_room_any_more_is_not_acknowledged(
    stage: Stage,
    runtime: Runtime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchserver.refserver.registry.MAX_INSTANCES", 1)

    calls = [stage.call(Op.REGISTER_KV_CACHE, *registration_of(i)) for i in (1, 2)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert sorted(isinstance(answer, RefusalError) for answer in answers) == [False, True]
    assert len(runtime.opened) == 2
    await all_unmapped(runtime, 1)
    assert len(stage.core.registry.mapped) == 1


@pytest.mark.torch
@pytest.mark.asyncio
async def test_memory_that_turns_out_to_be_useless_is_unmapped() -> None:
    async with with_runtime(layers=LAYERS + 1) as (stage, runtime):
        args = registration_of(1, layers=LAYERS + 1)
        with pytest.raises(
            RefusalError, match=r"instance 1: (the KV tensors cannot be used|kernels on)"
        ):
            await stage.call(Op.REGISTER_KV_CACHE, *args)
        await all_unmapped(runtime, 1)
        assert runtime.unmapped == runtime.opened
        assert not stage.core.registry.mapped


@pytest.mark.torch
@pytest.mark.asyncio
async def test_a_silent_gpu_client_is_unmapped_with_the_others(
    stage: Stage, runtime: Runtime
) -> None:
    await stage.call(Op.REGISTER_KV_CACHE, *registration_of(1))
    registry = stage.core.registry
    assert registry.stale(3600 * NS_PER_S) == ([], [])
    assert registry.stale(3601 * NS_PER_S) == ([1], [])
    registry.remove_mapped(1)
    await all_unmapped(runtime, 1)
    assert runtime.unmapped == runtime.opened


ON_HOST = CpuShmHandle(
    shm_name="none", nbytes=CUDA.nbytes, dtype="float16", shape=CUDA.shape, stride=CUDA.stride
)
NO_TORCH = "import of torch halted; None in sys.modules"


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)


def registration(instance_id: int, handles: list[Any]) -> tuple[Any, ...]:
    return instance_id, handles, "m", 2, "vllm", {"kv_layout": "NHD"}, []


@pytest.mark.asyncio
@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize("handle", [CUDA, RAW])
async def test_without_torch_a_gpu_client_is_refused_and_others_are_served(
    handle: KvHandle,
) -> None:
    with empty_stage() as stage, client_memory(1) as (handles, _):
        with pytest.raises(RefusalError) as caught:
            await stage.call(Op.REGISTER_KV_CACHE, *registration(1, [handle]))
        text = f"GPU clients need PyTorch in this server ({NO_TORCH}); "
        assert str(caught.value) == (
            f"REGISTER_KV_CACHE of instance 1: {text}pip install 'bench-server[gpu]'; "
            "no answer is sent, so the client waits until its own timeout"
        )
        assert not stage.core.registry.mapped
        assert await stage.call(Op.REGISTER_KV_CACHE, *registration(2, handles)) is VOID
        reply = await stage.call(Op.STORE, key("a", 0), 2, [FROM], b"any event")
        assert reply.ok


def test_tensors_of_one_client_lie_all_on_a_gpu_or_none() -> None:
    assert on_gpu([CUDA, RAW]) == [CUDA, RAW]
    assert on_gpu([ON_HOST, ON_HOST]) == []
    with pytest.raises(RefusalError, match=r"^1 of 2 KV tensors lie on a GPU, expected all$"):
        on_gpu([CUDA, ON_HOST])


@pytest.mark.asyncio
async def test_a_bad_layout_is_refused_before_torch_is_looked_for() -> None:
    with empty_stage() as stage:
        flat = cuda_handle((2, 3))
        with pytest.raises(RefusalError, match=r": a tensor of shape \(2, 3\)"):
            await stage.call(Op.REGISTER_KV_CACHE, *registration(1, [flat]))

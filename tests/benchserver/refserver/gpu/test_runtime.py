"""What all GPU clients share: L1 pinned once, what is left at the end, which device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from benchserver.cuda import mark
from benchserver.refserver.gpu import runtime as cudaruntime
from benchserver.refserver.gpu.device import Device
from benchserver.refserver.gpu.runtime import CudaRuntime, must_leave_at_once
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.store.arena import Arena, open_private
from tests.benchserver.refserver.gpu.described import CUDA, DEVICE
from tests.cudastage import UUID


class Cuda:
    """Stands in for torch in a `CudaRuntime`."""

    def __init__(self, problem: str = "") -> None:
        self.problem = problem
        self.log: list[Any] = []

    def visible_devices(self) -> dict[str, Device]:
        self.log.append("devices")
        return {UUID: DEVICE, "other": replace(DEVICE, ordinal=1)}

    def pin(self, memory: Any) -> str:
        self.log.append(("pin", memory.ctypes.data, memory.nbytes))
        return self.problem

    def unpin(self, memory: Any) -> None:
        self.log.append(("unpin", memory.ctypes.data))


class Stream:
    """Stands in for a `CudaStream`."""

    def __init__(self, *, idle: bool) -> None:
        self.idle = idle
        self.is_closed = False

    def running(self) -> Any:
        return nullcontext()

    def is_idle(self) -> bool:
        return self.idle

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    found = Cuda()
    monkeypatch.setattr(mark, "place", lambda: None)
    monkeypatch.setattr(cudaruntime, "_given_up", [])
    for name in ("visible_devices", "pin", "unpin"):
        monkeypatch.setattr(cudaruntime, name, getattr(found, name))
    return found


@pytest.fixture
def arena() -> Iterator[Arena]:
    memory = open_private(1 << 16)
    yield memory
    memory.close()


def test_l1_is_pinned_once_and_unpinned_at_the_end(cuda: Cuda, arena: Arena) -> None:
    runtime = CudaRuntime()
    assert not cuda.log
    assert runtime.load(arena) == ""
    assert runtime.load(arena) == ""
    start = arena.view(0, 1).ctypes.data
    assert cuda.log == ["devices", ("pin", start, 1 << 16)]
    runtime.close()
    runtime.close()
    assert cuda.log[2:] == [("unpin", start)]
    assert runtime.stopping.is_set()


def test_a_server_that_cannot_pin_says_so_once_and_goes_on(cuda: Cuda, arena: Arena) -> None:
    cuda.problem = "cudaHostRegister: error 2"
    runtime = CudaRuntime()
    assert runtime.load(arena).startswith("L1 is not pinned (cudaHostRegister: error 2): ")
    assert runtime.load(arena) == ""
    runtime.close()
    assert not [entry for entry in cuda.log if entry[0] == "unpin"]


@pytest.mark.parametrize("idle", [True, False])
def test_what_is_left_at_the_end_is_unmapped_if_nothing_uses_it(
    cuda: Cuda, arena: Arena, monkeypatch: pytest.MonkeyPatch, idle: bool
) -> None:
    closed: list[str] = []

    class Memory:
        def map(self, handles: Any) -> None:
            assert handles == [CUDA]

        def close(self) -> None:
            closed.append("memory")

    memory: Any = Memory()
    stream: Any = Stream(idle=idle)
    monkeypatch.setattr(cudaruntime, "ClientMemory", lambda *_: memory)
    monkeypatch.setattr(cudaruntime, "CudaStream", lambda *_: stream)
    runtime = CudaRuntime()
    runtime.load(arena)
    assert runtime.open([CUDA]) == (memory, stream)
    runtime.close()
    assert closed == (["memory"] if idle else [])
    assert [entry[0] for entry in cuda.log[2:]] == (["unpin"] if idle else [])
    assert stream.is_closed == idle
    # Dropped objects would be unmapped after all, by torch.
    assert must_leave_at_once() != idle
    assert cudaruntime._given_up == ([] if idle else [runtime])


@pytest.mark.usefixtures("cuda")
def test_a_client_must_be_on_one_device_that_the_server_sees(arena: Arena) -> None:
    runtime = CudaRuntime()
    runtime.load(arena)
    with pytest.raises(RefusalError) as caught:
        runtime.open([replace(CUDA, device_uuid="c")])
    assert str(caught.value) == (
        f"device 'c' is not visible to this server, which sees {UUID}, other; start it with the "
        "same CUDA_VISIBLE_DEVICES"
    )
    with pytest.raises(RefusalError, match="KV tensors on 2 devices, expected one a client"):
        runtime.open([CUDA, replace(CUDA, device_uuid="other")])
    runtime.close()

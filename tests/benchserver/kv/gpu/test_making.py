"""Which rank gets which GPU, and what is said before the first byte is allocated."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from benchserver.errors import FatalError
from benchserver.kv.content import PoolContent, group_patterns
from benchserver.kv.gpu import making
from benchserver.kv.gpu.lanes import Lanes
from benchserver.kv.gpu.making import assign_devices, make_pool
from benchserver.kv.layout import place_tensors
from benchserver.kv.placement import RankDevice
from shapespec import parse_shape_spec
from tests.faketorch import GIB, UUID, FakeTorch, use_fake_torch

SPEC = parse_shape_spec("(2,8,2,1,4):float16:2")
LANES = Lanes()
CONTENT = PoolContent(spec=SPEC, patterns=group_patterns(bytes(16), SPEC, 4), rank=1, ranks=2)
DEVICE = RankDevice(rank=1, number=3, name="FAKE", uuid=UUID.lower())


@pytest.fixture
def no_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the look for a device pass."""
    monkeypatch.setattr(making, "require_cuda", lambda: None)


@pytest.mark.usefixtures("no_check")
def test_ranks_take_the_visible_devices_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    use_fake_torch(monkeypatch, devices=2)
    assert assign_devices(3, 1000) == [
        RankDevice(rank=rank, number=number, name="FAKE", uuid=UUID.lower())
        for rank, number in enumerate((0, 1, 0))
    ]


@pytest.mark.usefixtures("no_check")
def test_room_is_looked_for_before_anything_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = use_fake_torch(monkeypatch, free=10 * GIB)
    assign_devices(2, 5 * GIB)
    with pytest.raises(FatalError, match=f"{15 * GIB} bytes asked for, {10 * GIB} bytes free"):
        assign_devices(3, 5 * GIB)
    assert torch.log == []


@pytest.mark.usefixtures("no_check")
def test_cuda_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = use_fake_torch(monkeypatch)

    def refuse(number: int) -> Any:
        raise RuntimeError("CUDA driver initialization failed\nmore")

    torch.cuda.get_device_properties = refuse
    with pytest.raises(FatalError, match=r"^--mode gpu: CUDA does not start: CUDA driver init.*d$"):
        assign_devices(1, 1)


def test_without_a_device_torch_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise FatalError("no device")

    monkeypatch.setattr(making, "require_cuda", refuse)
    with pytest.raises(FatalError, match="no device"):
        assign_devices(1, 1)


def make(monkeypatch: pytest.MonkeyPatch, torch: FakeTorch, pool: Any) -> Any:
    torch.cuda.Stream = lambda device: ("stream", device)
    monkeypatch.setattr(making, "CudaPool", pool)
    return make_pool(
        CONTENT,
        DEVICE,
        ipc="driver",
        cancel=threading.Event(),
        lanes=LANES,
    )


def test_a_pool_has_memory_events_and_a_stream_on_its_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = use_fake_torch(monkeypatch)
    pool = make(monkeypatch, torch, lambda content, **parts: parts | {"content": content})
    assert pool["memory"].device == "cuda:3"
    assert pool["memory"].tensor.nbytes == place_tensors(SPEC)[1]
    assert pool["events"].stream == ("stream", "cuda:3")
    assert pool["lanes"] is LANES
    assert pool["content"] is CONTENT


def test_a_pool_that_cannot_be_made_keeps_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = use_fake_torch(monkeypatch)

    def refuse(*_: Any, **__: Any) -> Any:
        raise FatalError("no kernels")

    with pytest.raises(FatalError, match="no kernels"):
        make(monkeypatch, torch, refuse)
    assert torch.log[-1] == "empty_cache"


@pytest.mark.usefixtures("no_check")
def test_a_torch_that_does_not_name_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = use_fake_torch(monkeypatch)
    torch.cuda.get_device_properties = lambda number: object()
    with pytest.raises(FatalError, match=r"CUDA does not start: 'object' object has no attribute"):
        assign_devices(1, 1)

"""Whether CUDA can be used, by fakes; and what a CudaPool does beside the suite over pools."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from benchserver.errors import FatalError
from benchserver.kv import cuda
from benchserver.kv.blocks import Window
from benchserver.kv.cuda import CudaPool, require_cuda, require_device
from benchserver.kv.evidence import EvidenceKind
from benchserver.kv.host import group_patterns, place_tensors
from benchserver.kv.pool import EventError, KvPool
from protocol.handles import CudaRawHandle
from shapespec import parse_shape_spec
from tests.poolsuite import DIGESTS, Stub, open_on_cpu, plan

TEXT = "(2,24,2,3,4):float16:2;(1,24,2,1,8):bfloat16:1"
SPEC = parse_shape_spec(TEXT)


def fake_torch(monkeypatch: pytest.MonkeyPatch, *, built_for: str | None, usable: bool) -> None:
    module = ModuleType("torch")
    module.__spec__ = importlib.util.spec_from_loader("torch", None)
    vars(module).update(
        __version__="2.11.0",
        version=SimpleNamespace(cuda=built_for),
        cuda=SimpleNamespace(is_available=lambda: usable),
    )
    monkeypatch.setitem(sys.modules, "torch", module)


def test_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "device_count", lambda: 0)
    for require in (require_device, require_cuda):
        with pytest.raises(FatalError) as raised:
            require()
        assert str(raised.value) == (
            "--mode gpu: this machine has no usable CUDA device; use --mode cpu"
        )


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "device_count", lambda: 1)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for require in (require_device, require_cuda):
        with pytest.raises(FatalError) as raised:
            require()
        assert str(raised.value) == (
            "--mode gpu: PyTorch is not installed; pip install 'bench-server[gpu]', or use "
            "--mode cpu"
        )


@pytest.mark.parametrize(
    ("built_for", "usable", "text"),
    [
        (None, False, "PyTorch 2.11.0 is built without CUDA; install one that is built with it"),
        ("13.0", False, "PyTorch 2.11.0, built for CUDA 13.0, finds no usable device"),
    ],
)
def test_with_a_torch_that_cannot(
    monkeypatch: pytest.MonkeyPatch, built_for: str | None, usable: bool, text: str
) -> None:
    monkeypatch.setattr(cuda, "device_count", lambda: 1)
    fake_torch(monkeypatch, built_for=built_for, usable=usable)
    require_device()
    with pytest.raises(FatalError, match=f"^--mode gpu: {text}") as raised:
        require_cuda()
    assert "\n" not in str(raised.value)


def test_with_a_torch_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "device_count", lambda: 1)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(FatalError, match=r"^--mode gpu: PyTorch cannot be loaded .*; pip install"):
        require_cuda()


BROKEN = {
    "raise RuntimeError('built for\\nanother numpy')": "RuntimeError: built for another numpy",
    "raise AttributeError('no attribute x')": "AttributeError: no attribute x",
    "raise ValueError": "ValueError: ",
    "raise SystemExit(7)": "SystemExit: 7",
    "raise KeyboardInterrupt": "KeyboardInterrupt: ",
    "raise ImportError('libtorch_cuda.so')": "ImportError: libtorch_cuda.so",
    "__version__ = '0'": "AttributeError: module 'torch' has no attribute 'version'",
    "": "AttributeError: module 'torch' has no attribute '__version__'",
    "import types; __version__ = '1'; version = types.SimpleNamespace(cuda='13'); cuda = 0": (
        "AttributeError: 'int' object has no attribute 'is_available'"
    ),
}


@pytest.mark.parametrize(("source", "text"), BROKEN.items())
def test_with_a_torch_that_is_broken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, text: str
) -> None:
    (tmp_path / "torch").mkdir()
    if source:  # else a folder of that name, and nothing in it
        (tmp_path / "torch" / "__init__.py").write_text(source)
    monkeypatch.setattr(cuda, "device_count", lambda: 1)
    # No other torch, which would win over a mere folder.
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    try:
        with pytest.raises(FatalError) as raised:
            require_cuda()
    finally:
        sys.modules.pop("torch", None)
    assert str(raised.value).startswith(f"--mode gpu: PyTorch cannot be loaded ({text}")
    assert "\n" not in str(raised.value)


def test_a_torch_without_a_spec_is_looked_at_by_whoever_loads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuda, "device_count", lambda: 1)
    module = ModuleType("torch")
    module.__spec__ = None
    monkeypatch.setitem(sys.modules, "torch", module)
    require_device()
    with pytest.raises(FatalError, match="PyTorch cannot be loaded"):
        require_cuda()


def test_the_driver_is_asked_beside_the_main_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take seconds, in which no handler of a signal would be called."""
    asked_in: list[int] = []

    def load(name: str) -> Any:
        asked_in.append(threading.get_ident())
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert cuda.device_count() == 0
    assert asked_in
    assert threading.get_ident() not in asked_in


def test_with_all_that_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "device_count", lambda: 1)
    fake_torch(monkeypatch, built_for="13.0", usable=True)
    require_cuda()


class Recorder(Stub):
    """Memory that says what it was asked for, and events that say what they saw."""

    def handle(
        self, *, dtype: str, shape: tuple[int, ...], stride: tuple[int, ...], offset: int
    ) -> CudaRawHandle:
        nbytes = int(np.prod(shape)) * 2
        return CudaRawHandle(
            ipc_handle=bytes(64),
            alloc_offset=offset,
            nbytes=nbytes,
            dtype=dtype,
            shape=shape,
            stride=stride,
            device_uuid="uuid",
        )

    def record(self) -> bytes:
        return b"e" * 64

    def wait(self, handle: bytes, timeout_ns: int) -> None:
        raise EventError(f"{handle!r} {timeout_ns}")


def pool_in(memory: Stub) -> CudaPool:
    return CudaPool(
        SPEC,
        group_patterns(bytes(16), SPEC),
        memory=cast(Any, memory),
        events=cast(Any, memory),
        content_rank=0,
        ranks=1,
        blocks_per_chunk=2,
        cancel=threading.Event(),
    )


@pytest.mark.torch
def test_descriptors_name_every_layers_place() -> None:
    pool = pool_in(Recorder(place_tensors(SPEC)[1]))
    places, _ = place_tensors(SPEC)
    with pool.exported() as handles:
        described = [cast(CudaRawHandle, handle) for handle in handles]
    assert [handle.alloc_offset for handle in described] == [place.offset for place in places]
    assert [handle.nbytes for handle in described] == [place.nbytes for place in places]
    assert (described[0].dtype, described[2].dtype) == ("float16", "bfloat16")
    assert described[0].shape == (2, 24, 2, 3, 4)
    assert described[0].stride == (576, 24, 12, 4, 1)
    assert described[2].shape == (24, 2, 8)
    with pool.exported(hnd=True) as handles:
        assert handles[0].shape == (2, 24, 3, 2, 4)


@pytest.mark.torch
def test_events_are_those_it_was_given() -> None:
    memory = Recorder(place_tensors(SPEC)[1])
    pool: KvPool = pool_in(memory)
    assert pool.asynchronous is True
    assert pool.record_event() == b"e" * 64
    with pytest.raises(EventError, match="b'xy' 5"):
        pool.wait_event(b"xy", timeout_ns=5)
    pool.release()
    pool.close()
    pool.close()
    assert memory.ended == ["release", "close"]


@pytest.mark.torch
def test_memory_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="expected"):
        pool_in(Stub(place_tensors(SPEC)[1] + 8))


@pytest.mark.torch
@pytest.mark.parametrize(
    "window",
    [
        Window(first=20, count=8, block_ids=tuple(range(20, 28)), canaries=()),
        Window(first=-1, count=8, block_ids=tuple(range(-1, 7)), canaries=()),
        Window(first=1, count=8, block_ids=(1, 2, 3, 4, 5, 6, 7, 9), canaries=()),
        Window(first=1, count=8, block_ids=(0, 2, 3, 4, 5, 6, 7, 8), canaries=()),
        Window(first=1, count=9, block_ids=tuple(range(1, 9)), canaries=(10,)),
    ],
)
def test_blocks_that_are_not_there_are_refused(window: Window) -> None:
    """A device would read or write whatever lies there."""
    with open_on_cpu(TEXT) as tested:
        before = tested.read().tobytes()
        works: list[Callable[[], object]] = [
            lambda: tested.pool.poison(window),
            lambda: tested.pool.verify_skipped(window, DIGESTS, (), skipped=1),
            lambda: tested.pool.verify_canaries(window),
        ]
        if not window.canaries:  # else the blocks of the table are all there
            works.append(lambda: tested.pool.fill(window, DIGESTS))
            works.append(lambda: tested.pool.verify(window, DIGESTS, ()))
        for work in works:
            with pytest.raises(ValueError, match="of a pool of 24 blocks"):
                work()
        assert tested.read().tobytes() == before


@pytest.mark.torch
def test_digests_must_be_those_of_the_table() -> None:
    source, _ = plan()
    with open_on_cpu(TEXT) as tested:
        for work in (
            lambda: tested.pool.fill(source, DIGESTS[:3]),
            lambda: tested.pool.verify(source, DIGESTS[:3], ()),
        ):
            with pytest.raises(ValueError, match="3 chunks of 2 blocks, but a block table of 8"):
                work()


@pytest.mark.torch
@pytest.mark.parametrize("table", [(), (1, 24), (-1, 2)])
def test_chunks_of_blocks_that_are_not_there_are_refused(table: tuple[int, ...]) -> None:
    with open_on_cpu(TEXT) as tested:
        for work in (
            lambda: tested.pool.chunk_digest(table),
            lambda: tested.pool.gather_chunk(0, table, np.zeros(0, np.uint8)),
            lambda: tested.pool.scatter_chunk(0, table, np.zeros(0, np.uint8)),
        ):
            with pytest.raises(IndexError, match="of a pool of 24 blocks"):
                work()


@pytest.mark.torch
def test_a_closed_pool_proves_nothing() -> None:
    with open_on_cpu(TEXT) as tested:
        tested.pool.fill(plan()[0], DIGESTS)
        assert tested.pool.verify(plan()[0], DIGESTS, ()).kind is EvidenceKind.MATCH
        tested.pool.close()
        with pytest.raises(AttributeError):
            tested.pool.verify(plan()[0], DIGESTS, ())

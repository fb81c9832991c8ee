"""torch and the devices: found, or refused in one line; L1 pinned, or not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchserver.refserver.gpu import device as cudadevice
from benchserver.refserver.gpu.device import Device, refusing, visible_devices
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.store.arena import open_private
from tests.benchserver.refserver.gpu.described import fake_torch
from tests.cudastage import UUID


def test_devices_are_known_by_their_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    assert visible_devices() == {
        UUID: Device(ordinal=0, total_bytes=100),
        "b": Device(ordinal=1, total_bytes=200),
    }


def test_a_torch_without_cuda_and_a_machine_without_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = fake_torch(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(RefusalError, match="need a CUDA device, and none is visible"):
        visible_devices()
    torch.version.cuda = None
    with pytest.raises(RefusalError, match=r"need a PyTorch with CUDA, this one \(9.9\) has none"):
        visible_devices()

    def fail() -> None:
        raise RuntimeError("CUDA driver initialization failed\nCompile with ...")

    monkeypatch.setitem(sys.modules, "torch", fake_torch(init=fail))
    words = "^CUDA cannot be used: CUDA driver initialization failed$"
    with pytest.raises(RefusalError, match=words):
        visible_devices()


BROKEN = {
    "raise RuntimeError('compiled against another numpy\\nmore')": "RuntimeError: compiled against "
    "another numpy",
    "raise AttributeError('no x')": "AttributeError: no x",
    "raise ValueError": "ValueError",
    "raise SystemExit(7)": "SystemExit: 7",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
    "raise OSError('libtorch_cuda.so: cannot open')": "libtorch_cuda.so: cannot open",
    "__version__ = '0'": "AttributeError: module 'torch' has no attribute 'version'",
    "": "AttributeError: module 'torch' has no attribute '__version__'",
}


@pytest.mark.parametrize("source", BROKEN)
def test_a_torch_that_is_broken_is_a_refusal_of_one_line(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    if source:  # none: a namespace package
        (tmp_path / "torch" / "__init__.py").write_text(source)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setitem(sys.modules, "torch", None)
    del sys.modules["torch"]
    with pytest.raises(RefusalError) as caught:
        visible_devices()
    assert str(caught.value) == (
        f"GPU clients need PyTorch in this server ({BROKEN[source]}); "
        "pip install 'bench-server[gpu]'"
    )


@pytest.mark.parametrize("name", ["is_available", "init", "device_count"])
def test_whatever_torch_raises_about_cuda_is_a_refusal(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setitem(sys.modules, "torch", fake_torch(**{name: fail}))
    words = "^CUDA cannot be used: AssertionError: Torch not compiled with CUDA enabled$"
    with pytest.raises(RefusalError, match=words):
        visible_devices()


@pytest.mark.parametrize("kind", [RuntimeError, TypeError, ValueError, OverflowError])
def test_what_torch_raises_becomes_a_refusal_of_one_line(kind: type[Exception]) -> None:
    with (
        pytest.raises(RefusalError, match=r"^copies: CUDA error: out of memory$"),
        refusing("copies"),
    ):
        raise kind("CUDA error: out of memory\nFor debugging consider ...")
    with pytest.raises(KeyError), refusing("copies"):
        raise KeyError("a bug of ours")


def test_pinning_that_fails_leaves_no_error_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    later: list[str] = []

    @contextmanager
    def device(_ordinal: int) -> Iterator[None]:
        yield

    def zeros(*_: Any, **__: Any) -> None:
        if later:
            raise RuntimeError(later.pop())

    def register(*_: Any) -> int:
        later.append("CUDA error: part or all of the requested memory range is already mapped")
        return 712

    cudart = SimpleNamespace(cudaHostRegister=register, cudaError=SimpleNamespace(success=0))
    torch = fake_torch(device=device, cudart=lambda: cudart)
    torch.zeros = zeros
    monkeypatch.setitem(sys.modules, "torch", torch)
    memory = open_private(1 << 16)
    problem = cudadevice.pin(memory.view(0, 1 << 16))
    memory.close()
    assert problem == "cudaHostRegister: error 712"
    assert not later

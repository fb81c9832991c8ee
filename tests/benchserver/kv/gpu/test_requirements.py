"""Whether CUDA can be used, by fakes."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from benchserver.errors import FatalError
from benchserver.kv.gpu import requirements
from benchserver.kv.gpu.requirements import require_cuda, require_device


def fake_torch(
    monkeypatch: pytest.MonkeyPatch, *, built_for: str | None, usable: bool
) -> list[str]:
    """Put a torch there that is not; return what it will have been asked."""
    asked: list[str] = []

    def is_available() -> bool:
        asked.append("is_available")
        return usable

    module = ModuleType("torch")
    module.__spec__ = importlib.util.spec_from_loader("torch", None)
    vars(module).update(
        __version__="2.11.0",
        version=SimpleNamespace(cuda=built_for),
        cuda=SimpleNamespace(is_available=is_available),
    )
    monkeypatch.setitem(sys.modules, "torch", module)
    return asked


def test_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "device_count", lambda: 0)
    for require in (require_device, require_cuda):
        with pytest.raises(FatalError) as raised:
            require()
        assert str(raised.value) == (
            "--mode gpu: this machine has no usable CUDA device; use --mode cpu"
        )


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "device_count", lambda: 1)
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
    monkeypatch.setattr(requirements, "device_count", lambda: 1)
    fake_torch(monkeypatch, built_for=built_for, usable=usable)
    require_device()
    with pytest.raises(FatalError, match=f"^--mode gpu: {text}") as raised:
        require_cuda()
    assert "\n" not in str(raised.value)


def test_with_a_torch_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "device_count", lambda: 1)
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
    monkeypatch.setattr(requirements, "device_count", lambda: 1)
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


def test_a_torch_without_a_spec_is_left_to_the_one_that_loads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requirements, "device_count", lambda: 1)
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
    assert requirements.device_count() == 0
    assert asked_in
    assert threading.get_ident() not in asked_in


def test_with_all_that_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "device_count", lambda: 1)
    asked = fake_torch(monkeypatch, built_for="13.0", usable=True)
    require_cuda()
    assert asked == ["is_available"]

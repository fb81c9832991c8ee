"""As much of torch as the CUDA modules of the client call, without torch and without a GPU."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

GIB = 1 << 30
UUID = "9FB1D07C-0000-1111-2222-333344445555"


class FakeEvent:
    """An event that completes after `polls` looks; what is opened is the newest `FakeTorch`'s."""

    torch: FakeTorch

    def __init__(self, **options: Any) -> None:
        self.torch.log.append(("event", options))

    def record(self, stream: Any) -> None:
        self.torch.log.append(("record", stream))

    def ipc_handle(self) -> bytearray:
        self.torch.raise_if("ipc_handle")
        self.torch.log.append("handle")
        return bytearray(b"h" * 64)

    @classmethod
    def from_ipc_handle(cls, device: Any, handle: bytes) -> FakeEvent:
        cls.torch.raise_if("from_ipc_handle")
        cls.torch.log.append(("open", device, handle))
        return cls.__new__(cls)

    def query(self) -> bool:
        self.torch.raise_if("query")
        self.torch.polls -= 1
        return self.torch.polls < 0


class FakeStream:
    """Notes what it waits for."""

    def __init__(self, torch: FakeTorch) -> None:
        self._torch = torch

    def wait_event(self, event: Any) -> None:
        self._torch.log.append(("wait", type(event)))


class FakeTensor:
    """Bytes on a device, at an address in the middle of an allocation."""

    POINTER = 0x7F00_0020_0000

    def __init__(self, torch: FakeTorch, nbytes: int) -> None:
        self._torch = torch
        self.nbytes = nbytes

    def data_ptr(self) -> int:
        return self.POINTER

    def untyped_storage(self) -> FakeTensor:
        return self

    def _share_cuda_(self) -> tuple[Any, ...]:
        torch = self._torch
        torch.raise_if("share")
        torch.shared += 1
        return (
            0,
            torch.memory_handle,
            self.nbytes,
            512,
            torch.counters,
            torch.shared,
            b"e" * 64,
            False,
        )


class FakeTorch(ModuleType):
    """The module.  `errors` are what calls raise, by name; `log` what was called, in order."""

    uint8 = "uint8"

    def __init__(self, *, devices: int = 1, free: int = 64 * GIB) -> None:
        super().__init__("torch")
        self.free = free
        self.errors: dict[str, Exception] = {}
        self.log: list[Any] = []
        self.polls = 0
        self.shared = 0
        self.counters = b"/torch_1_2_0"
        self.memory_handle = b"m" * 66
        # Of this module alone.
        event = type("Event", (FakeEvent,), {"torch": self})
        self.cuda = SimpleNamespace(
            OutOfMemoryError=type("OutOfMemoryError", (RuntimeError,), {}),
            Event=event,
            device=self._device_context,
            device_count=lambda: devices,
            mem_get_info=self._mem_get_info,
            get_device_properties=lambda number: SimpleNamespace(name="FAKE", uuid=UUID),
            synchronize=lambda device: self.log.append(("synchronize", device)),
            ipc_collect=lambda: self.raise_if("ipc_collect"),
            empty_cache=lambda: self.log.append("empty_cache"),
        )

    def stream(self) -> FakeStream:
        return FakeStream(self)

    def raise_if(self, name: str) -> None:
        if name in self.errors:
            raise self.errors[name]

    def device(self, kind: str, number: int) -> str:
        return f"{kind}:{number}"

    def empty(self, nbytes: int, *, dtype: str, device: str) -> FakeTensor:
        self.raise_if("empty")
        assert dtype == self.uint8
        self.log.append(("empty", nbytes, device))
        return FakeTensor(self, nbytes)

    @contextlib.contextmanager
    def _device_context(self, device: str) -> Iterator[None]:
        self.log.append(("enter", device))
        yield
        self.log.append(("leave", device))

    def _mem_get_info(self, device: int) -> tuple[int, int]:
        self.raise_if("mem_get_info")
        return self.free, 140 * GIB


def use_fake_torch(monkeypatch: pytest.MonkeyPatch, **options: Any) -> FakeTorch:
    """Let `import torch` give a fake, for one test."""
    torch = FakeTorch(**options)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch

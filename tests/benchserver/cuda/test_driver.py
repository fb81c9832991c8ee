"""The driver's calls, over a library that is not there."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from benchserver.cuda.driver import DriverError, allocation_base, memory_handle

BASE, POINTER = 0x7F00_0000_0000, 0x7F00_0000_0200


class FakeDriver:
    """One allocation of 4096 bytes at BASE."""

    def __init__(self, code: int = 0, texts: bool = True) -> None:
        self._code = code
        self._texts = texts

    def cuMemGetAddressRange_v2(self, base: Any, size: Any, pointer: Any) -> int:  # noqa: N802
        assert isinstance(pointer, ctypes.c_uint64)
        if self._code == 0:
            assert BASE <= pointer.value < BASE + 4096
            base._obj.value, size._obj.value = BASE, 4096
        return self._code

    def cuIpcGetMemHandle(self, handle: Any, base: Any) -> int:  # noqa: N802
        assert ctypes.sizeof(handle._obj) == 64
        if self._code == 0:
            assert base.value == BASE
            handle._obj[:] = range(64)
        return self._code

    def cuGetErrorString(self, code: int, text: Any) -> int:  # noqa: N802
        if self._texts:
            text._obj.value = b"invalid argument"
        return 0 if self._texts else 1


def use(monkeypatch: pytest.MonkeyPatch, driver: FakeDriver) -> None:
    def load(name: str) -> FakeDriver:
        assert name == "libcuda.so.1"
        return driver

    monkeypatch.setattr(ctypes, "CDLL", load)


def test_where_an_allocation_begins_and_its_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeDriver())
    assert allocation_base(POINTER) == BASE
    assert memory_handle(BASE) == bytes(range(64))


@pytest.mark.parametrize(
    ("driver", "text"),
    [(FakeDriver(1), r"invalid argument \(1\)"), (FakeDriver(999, texts=False), "error 999")],
)
def test_a_driver_that_refuses(
    monkeypatch: pytest.MonkeyPatch, driver: FakeDriver, text: str
) -> None:
    use(monkeypatch, driver)
    with pytest.raises(DriverError, match=f"^cuMemGetAddressRange_v2: {text}$"):
        allocation_base(POINTER)
    with pytest.raises(DriverError, match=f"^cuIpcGetMemHandle: {text}$"):
        memory_handle(BASE)


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", load)
    with pytest.raises(DriverError, match=r"libcuda\.so\.1 is not usable"):
        allocation_base(POINTER)


def test_a_driver_without_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    with pytest.raises(DriverError, match=r"cuIpcGetMemHandle: libcuda\.so\.1 is not usable"):
        memory_handle(BASE)

"""The driver's calls, over a library that is not there."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from benchserver.cuda.driver import (
    DriverError,
    address_range,
    close_memory,
    context_of,
    count_devices,
    memory_handle,
    open_memory,
)

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


class NotedDriver:
    """Notes every call by its name and plain arguments, and answers with one code."""

    def __init__(self, *, refuses: str = "") -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._refuses = refuses

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.calls.append((name, *(_plain(argument) for argument in arguments)))
            if name in ("cuDeviceGetCount", "cuDevicePrimaryCtxRetain", "cuIpcOpenMemHandle_v2"):
                arguments[0]._obj.value = 5
            if name == "cuGetErrorString":
                arguments[1]._obj.value = b"out of luck"
                return 0
            return 7 if name == self._refuses else 0

        return call


def _plain(argument: Any) -> Any:
    """Return what an argument of a call holds; "&" for what the call writes to."""
    if isinstance(argument, ctypes.Structure):
        return bytes(argument)
    return getattr(argument, "value", "&")


def use(monkeypatch: pytest.MonkeyPatch, driver: FakeDriver | NotedDriver) -> None:
    def load(name: str) -> FakeDriver | NotedDriver:
        assert name == "libcuda.so.1"
        return driver

    monkeypatch.setattr(ctypes, "CDLL", load)


def test_where_an_allocation_begins_and_its_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeDriver())
    assert address_range(POINTER) == (BASE, 4096)
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
        address_range(POINTER)
    with pytest.raises(DriverError, match=f"^cuIpcGetMemHandle: {text}$"):
        memory_handle(BASE)


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", load)
    with pytest.raises(DriverError, match=r"libcuda\.so\.1 is not usable"):
        address_range(POINTER)


def test_a_driver_without_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    with pytest.raises(DriverError, match=r"cuIpcGetMemHandle: libcuda\.so\.1 is not usable"):
        memory_handle(BASE)


def test_devices_are_counted_by_a_driver_that_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = NotedDriver()
    use(monkeypatch, driver)
    assert count_devices() == 5
    assert driver.calls == [("cuInit", 0), ("cuDeviceGetCount", "&")]


def test_no_devices_are_counted_by_a_driver_that_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(monkeypatch, NotedDriver(refuses="cuInit"))
    with pytest.raises(DriverError, match=r"^cuInit: out of luck \(7\)$"):
        count_devices()


def test_memory_of_another_process_is_opened_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = NotedDriver()
    use(monkeypatch, driver)
    handle = bytes(range(64))
    assert open_memory(handle) == 5
    close_memory(5)
    assert driver.calls == [
        ("cuIpcOpenMemHandle_v2", "&", handle, 1),
        ("cuIpcCloseMemHandle", 5),
    ]


BEFORE = [
    ("cuInit", 0),
    ("cuDeviceGet", "&", 3),
    ("cuDevicePrimaryCtxRetain", "&", 0),
    ("cuCtxPushCurrent_v2", 5),
]
AFTER = [("cuCtxPopCurrent_v2", "&"), ("cuDevicePrimaryCtxRelease_v2", 0)]


@pytest.mark.parametrize("error", [None, ValueError("what was done in it")])
def test_a_context_is_current_in_between_and_given_back(
    monkeypatch: pytest.MonkeyPatch, error: ValueError | None
) -> None:
    driver = NotedDriver()
    use(monkeypatch, driver)
    with contextlib.suppress(ValueError), context_of(3):
        assert driver.calls == BEFORE
        if error is not None:
            raise error
    assert driver.calls == [*BEFORE, *AFTER]


def test_a_context_that_cannot_be_made_current_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = NotedDriver(refuses="cuCtxPushCurrent_v2")
    use(monkeypatch, driver)
    with pytest.raises(DriverError, match="cuCtxPushCurrent_v2: out of luck"), context_of(3):
        pytest.fail("there is no context")
    assert driver.calls[-1] == ("cuDevicePrimaryCtxRelease_v2", 0)
    assert ("cuCtxPopCurrent_v2", "&") not in driver.calls

"""The driver's handles: opened once, closed by the last user, and measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from benchserver.cuda import driver as cudadriver
from benchserver.refserver.gpu.driver import OpenHandles, bytes_behind
from benchserver.refserver.refusal import RefusalError


@pytest.mark.usefixtures("driver")
def test_the_driver_is_asked_how_far_an_allocation_reaches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(name: str, *arguments: Any) -> None:
        assert name == "cuMemGetAddressRange_v2"
        arguments[0]._obj.value, arguments[1]._obj.value = 1000, 24

    monkeypatch.setattr(cudadriver, "_call", answer)
    assert [bytes_behind(0, at) for at in (1000, 1010, 1024, 2000)] == [24, 14, 0, 0]


class Driver:
    """Stands in for the calls of libcuda, and notes them."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def call(self, name: str, *arguments: Any) -> None:
        self.calls.append(name)
        if name == "cuIpcOpenMemHandle_v2":
            arguments[0]._obj.value = 0x7000 + len(self.calls)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    found = Driver()

    @contextmanager
    def context(_ordinal: int) -> Iterator[None]:
        yield

    monkeypatch.setattr(cudadriver, "_call", found.call)
    monkeypatch.setattr(cudadriver, "context_of", context)
    return found


def test_a_driver_handle_is_opened_once_and_closed_by_its_last_user(driver: Driver) -> None:
    handles = OpenHandles()
    first = handles.open(0, b"a" * 64)
    assert handles.open(0, b"a" * 64) == first
    assert handles.open(0, b"b" * 64) != first
    assert driver.calls == ["cuIpcOpenMemHandle_v2"] * 2
    handles.close(0, b"a" * 64)
    assert len(driver.calls) == 2
    handles.close(0, b"a" * 64)
    assert driver.calls[2:] == ["cuIpcCloseMemHandle"]
    assert handles.open(0, b"a" * 64) != first
    with pytest.raises(KeyError):
        handles.close(1, b"a" * 64)


def test_a_machine_without_the_driver_refuses_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudadriver, "LIBRARY", "libnone.so.7")
    with pytest.raises(RefusalError, match=r"^cuInit: libnone.so.7 is not usable \("):
        OpenHandles().open(0, bytes(64))
    assert bytes_behind(0, 4096) == 0

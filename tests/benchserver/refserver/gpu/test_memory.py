"""Descriptors that may be mapped, and those that would do harm."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchserver.refserver.gpu import memory as cudamemory
from benchserver.refserver.gpu.device import Device
from benchserver.refserver.gpu.driver import OpenHandles
from benchserver.refserver.gpu.memory import (
    MAX_COUNTERS,
    ClientMemory,
    CudaDescriptor,
    check_counter,
    check_descriptor,
)
from benchserver.refserver.refusal import RefusalError
from protocol.handles import CudaHandle
from tests.benchserver.refserver.gpu.described import CUDA, DEVICE, RAW, fake_torch


def test_good_descriptors_may_be_mapped() -> None:
    for handle in (CUDA, RAW):
        check_descriptor(handle, DEVICE)
    check_descriptor(CUDA, Device(ordinal=0, total_bytes=CUDA.nbytes))
    for memory in (bytes(64), b"c" + bytes(64), b"\x02c" + bytes(64)):
        check_descriptor(shared(_1=memory), DEVICE)
    check_descriptor(shared(_6=None, _7=False), DEVICE)


def shared(**changes: Any) -> CudaHandle:
    """Return the good descriptor with other elements in its share: `_3=1` is element 3."""
    share: list[Any] = list(CUDA.share)
    for name, value in changes.items():
        share[int(name[1:])] = value
    return replace(CUDA, share=tuple(share))


@pytest.mark.parametrize(
    ("handle", "words"),
    [
        (replace(CUDA, stride=(0, 0, 0, 0, 0), shape=(2, 999, 2, 1, 4)), "overlaps itself"),
        (shared(_2=1 << 31), f"{1 << 31} bytes at 0 of an allocation, on a device of {1 << 30}"),
        (shared(_3=1 << 30), f"bytes at {1 << 30} of an allocation, on a device of"),
        (replace(RAW, alloc_offset=1 << 30), f"bytes at {1 << 30} of an allocation"),
        (shared(_3=1), "a tensor of float16 starts at byte 1 of an allocation"),
        (replace(RAW, alloc_offset=4097), "a tensor of float16 starts at byte 4097"),
        (shared(_1=None), "without memory, reference counter or event"),
        (shared(_4=None), "without memory, reference counter or event"),
        (shared(_6=None), "without memory, reference counter or event"),
        (shared(_5=MAX_COUNTERS), "reference counter 10000, torch has 10000 a file"),
        (shared(_1=b"\x02e" + bytes(64)), r"66 bytes and begins with b'\\x02e', expected one of"),
        (shared(_1=b"e" + bytes(64)), "65 bytes and begins with b'e"),
        (shared(_1=b"\x02c" + bytes(63)), "65 bytes"),
        (shared(_1=b"\x02c"), "2 bytes"),
        (shared(_1=b"\x02c" + bytes(65)), "67 bytes"),
        (shared(_6=bytes(63)), "an event of 63 bytes, expected 64"),
        (shared(_6=b"", _7=False), "an event of 0 bytes, expected 64"),
    ],
)
def test_descriptors_that_would_do_harm_are_not_mapped(handle: CudaDescriptor, words: str) -> None:
    with pytest.raises(RefusalError, match=words):
        check_descriptor(handle, DEVICE)


@contextmanager
def counter_file(nbytes: int, name: str = "") -> Iterator[str]:
    """Yield a share's name of a file as torch makes them, 64 bytes more than its counters."""
    name = name or f"torch_{os.getpid()}_{time.monotonic_ns()}_0"
    path = Path("/dev/shm") / name
    path.write_bytes(bytes(nbytes))
    try:
        yield f"/{name}"
    finally:
        path.unlink()


def test_a_reference_counter_lies_in_a_file_of_torch_that_is_large_enough() -> None:
    with counter_file(64 + 8 * 10) as name:
        check_counter(shared(_4=name.encode(), _5=9))
        with pytest.raises(RefusalError, match=rf"^reference counter {name} has 144 bytes, .* 152"):
            check_counter(shared(_4=name.encode(), _5=10))
    with pytest.raises(RefusalError, match=rf"^reference counter {name}: No such file"):
        check_counter(shared(_4=name.encode(), _5=9))
    other = f"cudatest-{os.getpid()}"
    with counter_file(1 << 17, other):
        for odd in (
            other,
            f"/{other}",
            "/torch_1_2",
            "/torch_1_2_3/",
            "/../etc/passwd",
            "\xff",
            "/",
        ):
            with pytest.raises(RefusalError, match=r"^reference counter .* expected a /torch_"):
                check_counter(shared(_4=odd.encode("latin-1")))


class Storage:
    """What a share is mapped as."""

    POINTER = 0x7000_0000

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def data_ptr(self) -> int:
        return self.POINTER + self.offset


@pytest.mark.parametrize(("behind", "fits"), [(0, True), (1, False), (511, False), (4608, True)])
def test_a_share_that_is_larger_than_its_allocation_is_not_used(
    behind: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def new_shared(ordinal: int, memory: bytes, nbytes: int, offset: int, *rest: Any) -> Storage:
        asked.append((ordinal, memory, nbytes, offset, *rest))
        return Storage(offset)

    def bytes_behind(ordinal: int, pointer: int) -> int:
        assert (ordinal, pointer) == (0, Storage.POINTER)
        return behind

    torch = fake_torch()
    torch.device = lambda *words: words
    torch.UntypedStorage = SimpleNamespace(_new_shared_cuda=new_shared)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(cudamemory, "bytes_behind", bytes_behind)
    monkeypatch.setattr(cudamemory, "tensor_over", lambda storage, *_, **__: storage)
    monkeypatch.setattr(cudamemory, "give_back_unused", lambda: None)
    memory = ClientMemory(DEVICE, OpenHandles())
    with counter_file(64 + 80_000) as name:
        handle = shared(_3=4096, _4=name.encode())
        if fits:
            memory.map([handle, handle])
            assert len(memory.tensors) == 2
        else:
            with pytest.raises(RefusalError, match=f"^an allocation has {behind} bytes, .* 4608$"):
                memory.map([handle])
            assert not memory.tensors
    assert asked == [(0, *handle.share[1:])]
    memory.close()
    assert not memory._storages

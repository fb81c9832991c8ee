"""A GPU client's memory, mapped: descriptors to tensors, and the end of it.

What a descriptor says is checked before CUDA sees it, as far as this process can know: an offset
that is wrong would be an illegal access, after which no client can use the device any more.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from benchserver.errors import os_reason
from benchserver.refserver.gpu.copies import Tensor, tensor_over
from benchserver.refserver.gpu.device import Device, give_back_unused, refusing
from benchserver.refserver.gpu.driver import OpenHandles, bytes_behind
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.store.segments import open_segment
from protocol.dtypes import ITEM_BYTES
from protocol.handles import (
    EVENT_HANDLE_BYTES,
    MEMORY_HANDLE_BYTES,
    CudaHandle,
    CudaRawHandle,
)
from protocol.values import clip

CudaDescriptor = CudaHandle | CudaRawHandle

MAX_COUNTERS = 10_000
"""Slots of a file of torch's reference counters; one behind the end would be a crash."""

_COUNTER_FILE = re.compile(r"/torch_[0-9]+_[0-9]+_[0-9]+", re.ASCII)
_COUNTERS_AT, _COUNTER_BYTES = 64, 8
"""Such a file begins with a header of torch's (2.13: 80064 bytes for 10000 counters)."""


def check_descriptor(handle: CudaDescriptor, device: Device) -> None:
    """Raise RefusalError for a descriptor that cannot be mapped without harm."""
    item_bytes = ITEM_BYTES[handle.dtype]
    if math.prod(handle.shape) * item_bytes > handle.nbytes:
        raise RefusalError(f"a tensor of shape {handle.shape} overlaps itself")
    offset = handle.share[3] if isinstance(handle, CudaHandle) else handle.alloc_offset
    if offset + handle.nbytes > device.total_bytes:
        raise RefusalError(
            f"{handle.nbytes} bytes at {offset} of an allocation, on a device of "
            f"{device.total_bytes}"
        )
    if offset % item_bytes:
        raise RefusalError(f"a tensor of {handle.dtype} starts at byte {offset} of an allocation")
    if isinstance(handle, CudaHandle):
        _check_share(handle)


def _check_share(handle: CudaHandle) -> None:
    _, memory, _, _, counter, counter_offset, event, must_wait = handle.share
    if not memory or not counter or (event is None and must_wait):
        raise RefusalError("a share of torch without memory, reference counter or event")
    if not _is_plain(memory):
        raise RefusalError(
            f"a share of torch whose memory handle has {len(memory)} bytes and begins with "
            f"{memory[:2]!a}, expected one of cudaMalloc; a client with expandable segments must "
            "switch these off"
        )
    if event is not None and len(event) != EVENT_HANDLE_BYTES:
        raise RefusalError(
            f"a share of torch with an event of {len(event)} bytes, expected {EVENT_HANDLE_BYTES}"
        )
    if counter_offset >= MAX_COUNTERS:
        raise RefusalError(f"reference counter {counter_offset}, torch has {MAX_COUNTERS} a file")


def _is_plain(memory: bytes) -> bool:
    """Tell whether torch's handle is of cudaMalloc, and not of its expandable segments.

    The driver's handle comes last; before it there are a version and a type (torch 2.11), the type
    alone, or nothing (older).
    """
    head = len(memory) - MEMORY_HANDLE_BYTES
    return 0 <= head <= 2 and memory[:head][-1:] in (b"", b"c")


def check_counter(handle: CudaHandle) -> None:
    """Raise RefusalError unless a share's reference counter lies in a file of torch's.

    torch writes there when the memory is let go, and would crash, or alter another file.
    """
    name, index = (handle.share[4] or b"").decode("ascii", "replace"), handle.share[5]
    if not _COUNTER_FILE.fullmatch(name):
        raise RefusalError(f"reference counter {clip(name)}, expected a /torch_... file")
    try:
        descriptor = open_segment(name[1:])
    except OSError as error:
        raise RefusalError(f"reference counter {name}: {os_reason(error)}") from error
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    needed = _COUNTERS_AT + (index + 1) * _COUNTER_BYTES
    if not stat.S_ISREG(status.st_mode) or status.st_size < needed:
        raise RefusalError(
            f"reference counter {name} has {status.st_size} bytes, expected {needed} or more"
        )


class ClientMemory:
    """The tensors that descriptors name, in their order; elements are integers of their width.

    What was mapped stays so until `close`, also if `map` fails.
    """

    def __init__(self, device: Device, driver: OpenHandles) -> None:
        self.tensors: list[Tensor] = []
        self._ordinal = device.ordinal
        self._driver = driver
        self._storages: dict[Any, Any] = {}
        self._opened: list[bytes] = []

    def map(self, handles: Sequence[CudaDescriptor]) -> None:
        """Map descriptors that `check_descriptor` let pass; RefusalError if one cannot be.

        The current stream waits for the events of torch's shares.
        """
        import torch

        device = torch.device("cuda", self._ordinal)
        with refusing("the KV tensors cannot be mapped"):
            for handle in handles:
                name, offset, open_it = self._place_of(handle, handles)
                if name not in self._storages:
                    open_it()
                self.tensors.append(
                    tensor_over(self._storages[name], handle, offset_bytes=offset, device=device)
                )

    def _place_of(
        self, handle: CudaDescriptor, handles: Sequence[CudaDescriptor]
    ) -> tuple[Any, int, Callable[[], None]]:
        """Return what names the memory of a tensor, where the tensor's offsets count from, and
        what opens it as a storage."""
        if isinstance(handle, CudaHandle):
            # Each share is opened once: it stands for one reference that the client counts.
            return handle.share, 0, lambda: self._open_share(handle)
        return handle.ipc_handle, handle.alloc_offset, lambda: self._open_raw(handle, handles)

    def _open_share(self, handle: CudaHandle) -> None:
        import torch

        check_counter(handle)
        storage = torch.UntypedStorage._new_shared_cuda(self._ordinal, *handle.share[1:])
        self._storages[handle.share] = storage
        offset = handle.share[3]
        self._check_size(storage.data_ptr() - offset, offset + handle.nbytes)

    def _open_raw(self, handle: CudaRawHandle, handles: Sequence[CudaDescriptor]) -> None:
        """Map an allocation as far as any tensor needs it."""
        nbytes = max(
            other.alloc_offset + other.nbytes
            for other in handles
            if isinstance(other, CudaRawHandle) and other.ipc_handle == handle.ipc_handle
        )
        pointer = self._driver.open(self._ordinal, handle.ipc_handle)
        self._opened.append(handle.ipc_handle)
        self._check_size(pointer, nbytes)
        storage = _bytes_at(pointer, nbytes, self._ordinal).untyped_storage()
        self._storages[handle.ipc_handle] = storage

    def _check_size(self, pointer: int, nbytes: int) -> None:
        size = bytes_behind(self._ordinal, pointer)
        if 0 < size < nbytes:
            raise RefusalError(f"an allocation has {size} bytes, the KV tensors need {nbytes}")

    def close(self) -> None:
        """Unmap everything; no work on it may be under way.  May wait for all streams."""
        self.tensors.clear()
        self._storages.clear()
        give_back_unused()
        opened, self._opened = self._opened, []
        for handle in opened:
            # A device in an error state refuses everything; the process's end unmaps it then.
            with suppress(RefusalError):
                self._driver.close(self._ordinal, handle)


class _Span:
    """Device memory, as the CUDA array interface names it."""

    def __init__(self, pointer: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "strides": None,
            "version": 2,
        }


def _bytes_at(pointer: int, nbytes: int, ordinal: int) -> Tensor:
    import torch

    tensor = torch.as_tensor(_Span(pointer, nbytes), device=torch.device("cuda", ordinal))
    if tensor.data_ptr() != pointer:
        raise RefusalError("this torch copies memory where it should map it")
    return tensor

"""A GPU client's memory, mapped: descriptors to tensors, and the end of it.

What a descriptor says is checked before CUDA sees it, as far as this process can know: an offset
that is wrong would be an illegal access, after which no client can use the device any more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from benchserver.refserver.cudadevice import Device, give_back_unused, refusing
from benchserver.refserver.cudadriver import OpenHandles, bytes_behind
from benchserver.refserver.cudapages import Tensor, tensor_over
from benchserver.refserver.layout import ITEM_BYTES
from benchserver.refserver.refusal import RefusalError
from protocol.handles import CudaHandle, CudaRawHandle

CudaDescriptor = CudaHandle | CudaRawHandle

MAX_COUNTERS = 10_000
"""Slots of a file of torch's reference counters; one behind the end would be a crash."""


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
    _, memory, _, _, counter, counter_offset, event, _ = handle.share
    if not memory or not counter or event is None:
        raise RefusalError("a share of torch without memory, reference counter or event")
    if counter_offset >= MAX_COUNTERS:
        raise RefusalError(f"reference counter {counter_offset}, torch has {MAX_COUNTERS} a file")


class ClientMemory:
    """The tensors that descriptors name, in their order; elements are integers of their width.

    Raises RefusalError if one cannot be mapped; none is then.
    """

    def __init__(
        self, handles: Sequence[CudaDescriptor], device: Device, driver: OpenHandles
    ) -> None:
        self.tensors: list[Tensor] = []
        self._ordinal = device.ordinal
        self._driver = driver
        self._opened: list[bytes] = []
        for handle in handles:
            check_descriptor(handle, device)
        mapped = False
        try:
            with refusing("the KV tensors cannot be mapped"):
                self.tensors = self._map(handles)
            mapped = True
        finally:
            if not mapped:
                self.close()

    def _map(self, handles: Sequence[CudaDescriptor]) -> list[Tensor]:
        import torch

        device = torch.device("cuda", self._ordinal)
        storages: dict[Any, Any] = {}
        tensors: list[Tensor] = []
        with torch.cuda.device(device):
            for handle in handles:
                name, offset, open_it = self._place_of(handle, handles)
                if name not in storages:
                    storages[name] = open_it()
                tensors.append(
                    tensor_over(storages[name], handle, offset_bytes=offset, device=device)
                )
        return tensors

    def _place_of(
        self, handle: CudaDescriptor, handles: Sequence[CudaDescriptor]
    ) -> tuple[Any, int, Callable[[], Any]]:
        """Return what names the memory of a tensor, where the tensor's offsets count from, and
        what opens it as a storage."""
        if isinstance(handle, CudaHandle):
            # Each share is opened once: it stands for one reference that the client counts.
            return handle.share, 0, lambda: self._open_share(handle)
        return handle.ipc_handle, handle.alloc_offset, lambda: self._open_raw(handle, handles)

    def _open_share(self, handle: CudaHandle) -> Any:
        import torch

        return torch.UntypedStorage._new_shared_cuda(self._ordinal, *handle.share[1:])

    def _open_raw(self, handle: CudaRawHandle, handles: Sequence[CudaDescriptor]) -> Any:
        """Map an allocation as far as any tensor needs it."""
        nbytes = max(
            other.alloc_offset + other.nbytes
            for other in handles
            if isinstance(other, CudaRawHandle) and other.ipc_handle == handle.ipc_handle
        )
        pointer = self._driver.open(self._ordinal, handle.ipc_handle)
        self._opened.append(handle.ipc_handle)
        size = bytes_behind(self._ordinal, pointer)
        if 0 < size < nbytes:
            raise RefusalError(f"an allocation has {size} bytes, the KV tensors need {nbytes}")
        return _bytes_at(pointer, nbytes, self._ordinal).untyped_storage()

    def close(self) -> None:
        """Unmap everything; no work on it may be under way."""
        self.tensors.clear()
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

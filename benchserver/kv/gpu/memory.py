"""One rank's KV memory on a GPU, and its descriptors: what a server needs to map it by CUDA IPC.

Two ways.  `torch`: torch shares the storage, with a reference counter for each export that the
server gives back; both processes need the same /dev/shm and CUDA IPC between them.  `driver`: the
driver's handle of the allocation, which any program can open, torch or not.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchserver.cuda import mark
from benchserver.cuda.driver import DriverError, address_range, memory_handle
from benchserver.cuda.reason import reason_of
from benchserver.errors import FatalError
from benchserver.kv.placement import CudaIpc
from protocol.errors import LocalProtocolError
from protocol.handles import CudaHandle, CudaRawHandle, handle_to_wire
from shapespec import DTYPES

_HINTS = {
    "torch": "in a container start it with --ipc=host; unset PYTORCH_CUDA_ALLOC_CONF (expandable "
    "segments and cudaMallocAsync cannot be shared); or use --cuda-ipc driver",
    "driver": "unset PYTORCH_CUDA_ALLOC_CONF (expandable segments and cudaMallocAsync cannot be "
    "shared); this device may not support CUDA IPC at all",
}


def require_device_room(nbytes: int, devices: Sequence[int]) -> None:
    """Raise FatalError unless a pool of `nbytes` bytes fits for each device that is named.

    `devices` names a device once for each pool that is to lie on it.
    """
    import torch

    for device, pools in sorted(Counter(devices).items()):
        try:
            free, _ = torch.cuda.mem_get_info(device)
        except RuntimeError as error:
            raise FatalError(f"GPU memory: cuda:{device}: {reason_of(error)}") from error
        if pools * nbytes > free:
            raise _no_room(pools * nbytes, free, device)


class CudaMemory:
    """A flat allocation of bytes on one device.

    `tensor`: the bytes, as a one-dimensional uint8 tensor.  `device`: its torch.device.
    `device_uuid`: the device's, as torch writes it, in lower case.
    """

    def __init__(self, nbytes: int, *, device: int, ipc: CudaIpc) -> None:
        """Allocate `nbytes` bytes, not zeroed; FatalError if they are not there."""
        import torch

        self.device: Any = torch.device("cuda", device)
        self._ipc = ipc
        free = 0
        try:
            self.device_uuid = str(torch.cuda.get_device_properties(device).uuid).lower()
            free, _ = torch.cuda.mem_get_info(device)
            self.tensor: Any = torch.empty(nbytes, dtype=torch.uint8, device=self.device)
        except torch.cuda.OutOfMemoryError as error:
            raise _no_room(nbytes, free, device) from error
        except RuntimeError as error:
            raise FatalError(
                f"GPU memory: {nbytes} bytes asked for on cuda:{device}: {reason_of(error)}"
            ) from error
        mark.place()

    def handle(
        self, *, dtype: str, shape: tuple[int, ...], stride: tuple[int, ...], offset: int
    ) -> CudaHandle | CudaRawHandle:
        """Describe a tensor that lies in the memory, from byte `offset` on.

        `stride` is in elements of `dtype`, and C-contiguous.  Raises FatalError if the memory
        cannot be exported.
        """
        import torch

        try:
            with torch.cuda.device(self.device):
                handle: CudaHandle | CudaRawHandle
                if self._ipc == "torch":
                    handle = self._shared(dtype, shape, stride, offset)
                else:
                    # The driver wants the device's context in this thread: this makes it current.
                    torch.cuda.synchronize(self.device)
                    handle = self._raw(dtype, shape, stride, offset)
            # What cannot be sent is known here, where it can be said what to do: handles of
            # expandable segments grow with the memory.
            handle_to_wire(handle)
            return handle
        except (RuntimeError, DriverError, LocalProtocolError) as error:
            raise FatalError(
                f"--cuda-ipc {self._ipc}: the KV pool on {self.device} cannot be exported "
                f"({reason_of(error)}); {_HINTS[self._ipc]}"
            ) from error

    def _shared(
        self, dtype: str, shape: tuple[int, ...], stride: tuple[int, ...], offset: int
    ) -> CudaHandle:
        # Once for each descriptor: a server gives back each one's reference counter.
        share = tuple(self.tensor.untyped_storage()._share_cuda_())
        return CudaHandle(
            share=share,
            dtype=dtype,
            shape=shape,
            stride=stride,
            storage_offset=offset // _item_bytes(dtype),
            device_uuid=self.device_uuid,
        )

    def _raw(
        self, dtype: str, shape: tuple[int, ...], stride: tuple[int, ...], offset: int
    ) -> CudaRawHandle:
        pointer: int = self.tensor.data_ptr()
        base, _ = address_range(pointer)
        nbytes = _item_bytes(dtype)
        for length in shape:
            nbytes *= length
        return CudaRawHandle(
            ipc_handle=memory_handle(base),
            alloc_offset=pointer - base + offset,
            nbytes=nbytes,
            dtype=dtype,
            shape=shape,
            stride=stride,
            device_uuid=self.device_uuid,
        )

    def release(self) -> None:
        """Leave no name in /dev/shm, for a process that leaves at once: see `cuda.mark`."""
        mark.remove_own_files()

    def close(self) -> None:
        """Give the memory back; what a server has not given back yet goes with the process."""
        import torch

        self.tensor = None
        # A device in an error state refuses everything; the process's end frees it then.
        with contextlib.suppress(RuntimeError):
            torch.cuda.ipc_collect()
            torch.cuda.empty_cache()


def _item_bytes(dtype: str) -> int:
    return DTYPES[dtype].item_bytes


def _no_room(nbytes: int, free: int, device: int) -> FatalError:
    return FatalError(
        f"GPU memory: {nbytes} bytes asked for, {free} bytes free on cuda:{device}; use a smaller "
        "--kvcache-shape-spec or --tp-size, or another device (CUDA_VISIBLE_DEVICES)"
    )

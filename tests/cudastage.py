"""A GPU client without a GPU: its memory is torch's on the CPU, its stream and events are here.

For tests of what the server does for GPU clients, marked `torch`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from benchserver.refserver.copier import Copier
from benchserver.refserver.gpu.copies import tensor_over
from benchserver.refserver.gpu.instance import CudaInstance
from benchserver.refserver.gpu.runtime import CudaRuntime
from benchserver.refserver.gpu.stream import Submitted, check_event_handle
from benchserver.refserver.gpu.work import DeviceWork
from benchserver.refserver.pages.layout import layout_of
from benchserver.refserver.pages.transfer import word_of
from benchserver.refserver.refusal import RefusalError
from protocol.handles import CudaHandle, CudaRawHandle, contiguous_strides

UUID = "6f4e1a50-93f5-8d1c-0b57-f0b0c8e2a9d1"
EVENT = b"client's event".ljust(64, b".")
FOREIGN_EVENT = b"cannot be opened".ljust(64, b".")


class HostEvent:
    """Has completed, unless the test says otherwise."""

    def __init__(self, is_done: Callable[[], bool]) -> None:
        self._is_done = is_done

    def query(self) -> bool:
        return self._is_done()


class HostStream:
    """Runs everything at once; `busy` lets it look as if nothing ever ended."""

    def __init__(self) -> None:
        import torch

        self.device: Any = torch.device("cpu")
        self.busy = False
        self.waited: list[bytes] = []
        self.recorded = 0

    def running(self) -> AbstractContextManager[None]:
        return nullcontext()

    def beside(self) -> AbstractContextManager[None]:
        return nullcontext()

    def wait_for(self, handle: bytes) -> None:
        check_event_handle(handle)
        if handle == FOREIGN_EVENT:
            raise RefusalError("the event that the request carries cannot be opened")
        self.waited.append(handle)

    def record(self, kept: object = None) -> Submitted:
        self.recorded += 1
        handle = self.recorded.to_bytes(64, "big")
        return Submitted(HostEvent(lambda: not self.busy), handle, kept)

    def is_idle(self) -> bool:
        return not self.busy

    def close(self) -> None:
        """Nobody else would use it."""


def cuda_handle(
    shape: tuple[int, ...], dtype: str = "float16", *, offset: int = 0, storage_bytes: int = 0
) -> CudaHandle:
    """Return the descriptor of a contiguous tensor, `offset` elements into its storage."""
    items = offset + int(np.prod(shape))
    nbytes = storage_bytes or items * np.dtype(word_of(dtype)).itemsize
    return CudaHandle(
        share=(0, b"\x02c" + b"m" * 64, nbytes, 0, b"/torch_1_2_3", 0, b"e" * 64, True),
        dtype=dtype,
        shape=shape,
        stride=contiguous_strides(shape),
        storage_offset=offset,
        device_uuid=UUID,
    )


def torch_tensors(memory: Any, handles: Sequence[CudaHandle | CudaRawHandle]) -> list[Any]:
    """Return the tensors that descriptors name in one piece of memory, a numpy array."""
    import torch

    storage = torch.from_numpy(memory.view(np.uint8).reshape(-1)).untyped_storage()
    return [tensor_over(storage, h, offset_bytes=0, device="cpu") for h in handles]


def cpu_instance(
    memory: Any,
    handles: Sequence[CudaHandle],
    *,
    chunk_size: int,
    world_size: int = 1,
    batch_bytes: int = 1 << 20,
    unmap: Callable[[], None] = lambda: None,
    runtime: CudaRuntime | None = None,
) -> tuple[CudaInstance, HostStream]:
    """Return a client whose `memory` the server takes for a GPU's, and its stream."""
    stream = HostStream()
    runtime = runtime or CudaRuntime()
    layout = layout_of(handles, {}, [], engine_type="vllm", chunk_size=chunk_size)
    work = DeviceWork(
        layout=layout,
        dtypes=[handle.dtype for handle in handles],
        tensors=torch_tensors(memory, handles),
        stream=stream,
        stopping=runtime.stopping,
        batch_bytes=batch_bytes,
    )
    instance = CudaInstance(
        work,
        model_name="m",
        world_size=world_size,
        layout=layout,
        thread=Copier(1, name="refserver-gpu"),
        runtime=runtime,
        unmap=unmap,
        now_ns=0,
    )
    return instance, stream

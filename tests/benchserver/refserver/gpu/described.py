"""A GPU client's tensors as it describes them, a device, and torch as far as it is asked for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from benchserver.refserver.gpu.device import Device
from protocol.handles import CudaRawHandle
from tests.cudastage import UUID, cuda_handle
from tests.faultstage import SHAPE

CUDA = cuda_handle(SHAPE)

RAW = CudaRawHandle(
    ipc_handle=bytes(64),
    alloc_offset=0,
    nbytes=CUDA.nbytes,
    dtype=CUDA.dtype,
    shape=CUDA.shape,
    stride=CUDA.stride,
    device_uuid=UUID,
)

DEVICE = Device(ordinal=0, total_bytes=1 << 30)


def fake_torch(**changes: Any) -> SimpleNamespace:
    properties = [
        SimpleNamespace(uuid=UUID.upper(), total_memory=100),
        SimpleNamespace(uuid="b", total_memory=200),
    ]
    cuda = {
        "is_available": lambda: True,
        "init": lambda: None,
        "device_count": lambda: len(properties),
        "get_device_properties": properties.__getitem__,
        **changes,
    }
    return SimpleNamespace(
        __version__="9.9", version=SimpleNamespace(cuda="13.0"), cuda=SimpleNamespace(**cuda)
    )

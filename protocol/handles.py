"""KV tensor descriptors: how a client tells the server where its paged KV tensors live.

A descriptor lies inside a msgpack extension of type 1: a msgpack map since 0.5.6, a pickle of the
server's own class before.  Descriptors are data: nothing here imports, maps or unpickles what a
peer names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from protocol import wrappers
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.values import clip

HANDLE_EXT_TYPE = 1
DESCRIPTOR_VERSION = 1
CPU_EVENT_STUB = b"stub_ipc_handle"
"""What stock clients send, and CPU servers answer, where CUDA would have an event handle."""

_DTYPE_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "uint8": 1, "int8": 1}
_MAX_RANK = 8
_MAX_NAME_BYTES = 255
_FIELDS = {"type", "shm_name", "nbytes", "version", "metadata"}
_METADATA_FIELDS = {"dtype", "shape", "stride", "storage_offset", "device_uuid"}


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the C-contiguous strides of `shape`, in elements."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuShmHandle:
    """A tensor in a POSIX shared-memory segment that the client owns (0.4.7 and later).

    The server maps the first `nbytes` bytes of `shm_name`; `shape`, `stride` and
    `storage_offset` are in elements of `dtype`, relative to the segment's start.
    """

    shm_name: str
    nbytes: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    storage_offset: int = 0
    device_uuid: str = "cpu"

    def span_bytes(self) -> int:
        """Return how many bytes of the segment the tensor reaches over, from its start."""
        if 0 in self.shape:
            return 0
        last = sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True))
        return (self.storage_offset + last + 1) * _DTYPE_BYTES[self.dtype]


def handle_to_wire(handle: CpuShmHandle) -> msgpack.ExtType:
    """Encode a descriptor as 0.5.6 wants it; LocalProtocolError if it overruns its segment."""
    _check_own(handle)
    body = {
        "type": "cpu_shm",
        "shm_name": handle.shm_name,
        "nbytes": handle.nbytes,
        "version": DESCRIPTOR_VERSION,
        "metadata": {
            "dtype": handle.dtype,
            "shape": list(handle.shape),
            "stride": list(handle.stride),
            "storage_offset": handle.storage_offset,
            "device_uuid": handle.device_uuid,
        },
    }
    return msgpack.ExtType(HANDLE_EXT_TYPE, msgpack.packb(body))


def pickled_handle_to_wire(handle: CpuShmHandle) -> msgpack.ExtType:
    """Encode a descriptor as 0.4.7 to 0.5.5 want it; LocalProtocolError as for 0.5.6."""
    _check_own(handle)
    longest = max(len(name.encode()) for name in (handle.shm_name, handle.device_uuid))
    if longest > _MAX_NAME_BYTES:
        raise LocalProtocolError(
            f"handle: a name of {longest} bytes, at most {_MAX_NAME_BYTES} can be sent"
        )
    values = {name: getattr(handle, name, None) for name in wrappers.FIELDS}
    return msgpack.ExtType(HANDLE_EXT_TYPE, wrappers.write_wrapper(values))


def _check_own(handle: CpuShmHandle) -> None:
    if handle.dtype not in _DTYPE_BYTES:
        raise LocalProtocolError(f"handle: dtype {handle.dtype!r} is not known")
    if len(handle.shape) != len(handle.stride):
        raise LocalProtocolError(
            f"handle: shape {handle.shape} and stride {handle.stride} differ in rank"
        )
    if handle.span_bytes() > handle.nbytes:
        raise LocalProtocolError(
            f"handle: the tensor spans {handle.span_bytes()} bytes of {handle.shm_name}, "
            f"which has {handle.nbytes}"
        )


def _natural(value: Any, place: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RemoteProtocolError(f"handle: {place} is {clip(value)}, expected 0 or more")
    return value


def _naturals(value: Any, place: str) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)) or len(value) > _MAX_RANK:
        raise RemoteProtocolError(f"handle: {place} is {clip(value)}, expected an array")
    return tuple(_natural(item, place) for item in value)


def _exact_map(value: Any, fields: set[str], place: str) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != fields:
        raise RemoteProtocolError(f"{place}: expected a map of exactly {sorted(fields)}")
    return value


def handle_from_wire(value: Any) -> CpuShmHandle:
    """Read one element of REGISTER_KV_CACHE's `kv_cache` array (0.5.6).

    Raises RemoteProtocolError for other types, versions and fields, as the real server does.
    """
    data = _ext_data(value)
    try:
        unpacked = msgpack.unpackb(data)
    except Exception as error:
        raise RemoteProtocolError(f"handle: not msgpack ({type(error).__name__})") from error
    body = _exact_map(unpacked, _FIELDS, "handle")
    # A map's `true` and 1.0 equal 1 in Python, but the server takes no other version than int 1.
    version_ok = type(body["version"]) is int and body["version"] == DESCRIPTOR_VERSION
    if body["type"] != "cpu_shm" or not version_ok:
        raise RemoteProtocolError(
            f"handle: type {clip(body['type'])} version {clip(body['version'])}, "
            "expected cpu_shm version 1"
        )
    metadata = _exact_map(body["metadata"], _METADATA_FIELDS, "handle.metadata")
    return _checked_handle(body, metadata)


def pickled_handle_from_wire(value: Any) -> CpuShmHandle:
    """Read one element of REGISTER_KV_CACHE's `kv_cache` array (0.4.7 to 0.5.5).

    Raises RemoteProtocolError for a pickle of anything but the CPU wrapper.
    """
    state = wrappers.read_wrapper(bytes(_ext_data(value)))
    return _checked_handle(state, state)


def _ext_data(value: Any) -> bytes:
    if not isinstance(value, msgpack.ExtType) or value.code != HANDLE_EXT_TYPE:
        raise RemoteProtocolError("handle: expected an extension of type 1")
    data: bytes = value.data
    return data


def _checked_handle(body: Mapping[str, Any], metadata: Mapping[str, Any]) -> CpuShmHandle:
    name, dtype, uuid = body["shm_name"], metadata["dtype"], metadata["device_uuid"]
    if not isinstance(name, str) or not isinstance(uuid, str):
        raise RemoteProtocolError("handle: shm_name and device_uuid must be strings")
    if not isinstance(dtype, str) or dtype not in _DTYPE_BYTES:
        raise RemoteProtocolError(f"handle: dtype {clip(dtype)} is not known")
    handle = CpuShmHandle(
        shm_name=name,
        nbytes=_natural(body["nbytes"], "nbytes"),
        dtype=dtype,
        shape=_naturals(metadata["shape"], "shape"),
        stride=_naturals(metadata["stride"], "stride"),
        storage_offset=_natural(metadata["storage_offset"], "storage_offset"),
        device_uuid=uuid,
    )
    if len(handle.shape) != len(handle.stride):
        raise RemoteProtocolError("handle: shape and stride differ in rank")
    if handle.span_bytes() > handle.nbytes:
        raise RemoteProtocolError(
            f"handle: the tensor spans {handle.span_bytes()} bytes of {handle.nbytes}"
        )
    return handle

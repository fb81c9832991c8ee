"""KV tensor descriptors: how a client tells the server where its paged KV tensors live.

A descriptor lies inside a msgpack extension of type 1: a msgpack map since 0.5.6, a pickle of the
server's own class before.  Descriptors are data: nothing here imports, maps, opens or unpickles
what a peer names.

A tensor lies in shared memory (`cpu_shm`) or in a GPU's: described by PyTorch's own way of sharing
a storage (`cuda`), or by a driver handle of the allocation (`cuda_raw`).  Descriptors of GPU
tensors are written and read in the form of 0.5.6 alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgpack

from protocol import wrappers
from protocol.bounds import check_msgpack
from protocol.dtypes import ITEM_BYTES
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.values import clip, is_int

HANDLE_EXT_TYPE = 1
DESCRIPTOR_VERSION = 1
CPU_EVENT_STUB = b"stub_ipc_handle"
"""What stock clients send, and CPU servers answer, where CUDA would have an event handle."""

EVENT_HANDLE_BYTES = 64
"""Size of a CUDA event's handle (cudaIpcEventHandle_t)."""

MEMORY_HANDLE_BYTES = 64
"""Size of a CUDA allocation's handle (cudaIpcMemHandle_t)."""

MAX_SHARE_BYTES = 256
"""Longest byte string in a `CudaShare`; PyTorch 2.11's have 66, 23 and 64."""

_MAX_RANK = 8
_MAX_NAME_BYTES = 255
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
        return _span_bytes(self)


CudaShare: TypeAlias = tuple[int, bytes | None, int, int, bytes | None, int, bytes | None, bool]
"""What torch's `UntypedStorage._share_cuda_()` returns: device, memory handle, bytes of the
storage, its offset in the allocation in bytes, handle and offset of the reference counter, event
handle, whether the event must be waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaHandle:
    """A tensor in a CUDA storage that PyTorch shares (0.5.6).

    `shape`, `stride` and `storage_offset` are in elements of `dtype`, relative to the storage's
    start.  `device_uuid` is the text of torch's device properties, lower case; the device number
    in `share` is the client's own and says nothing to a server.
    """

    share: CudaShare
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    storage_offset: int = 0
    device_uuid: str

    @property
    def nbytes(self) -> int:
        """Return the size of the storage."""
        return self.share[2]

    def span_bytes(self) -> int:
        """Return how many bytes of the storage the tensor reaches over, from its start."""
        return _span_bytes(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaRawHandle:
    """A contiguous tensor of `nbytes` bytes in a CUDA allocation (0.5.6).

    `ipc_handle` is the driver's handle of the whole allocation, in which the tensor begins at
    `alloc_offset` bytes.  A server rebuilds it from these alone: `stride` and `storage_offset`
    must say nothing else.
    """

    ipc_handle: bytes
    alloc_offset: int
    nbytes: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    storage_offset: int = 0
    device_uuid: str

    def span_bytes(self) -> int:
        """Return how many bytes the tensor reaches over, from its start."""
        return _span_bytes(self)


KvHandle: TypeAlias = CpuShmHandle | CudaHandle | CudaRawHandle


def _span_bytes(handle: KvHandle) -> int:
    if 0 in handle.shape:
        return 0
    last = sum((n - 1) * s for n, s in zip(handle.shape, handle.stride, strict=True))
    return (handle.storage_offset + last + 1) * ITEM_BYTES[handle.dtype]


def handle_to_wire(handle: KvHandle) -> msgpack.ExtType:
    """Encode a descriptor as 0.5.6 wants it; LocalProtocolError if it overruns its memory."""
    _check_own(handle)
    tag, place = _place_to_wire(handle)
    body = {
        "type": tag,
        **place,
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


def _place_to_wire(handle: KvHandle) -> tuple[str, dict[str, Any]]:
    """Return the tag of a descriptor's type, and the fields that only this type has."""
    if isinstance(handle, CpuShmHandle):
        return "cpu_shm", {"shm_name": handle.shm_name, "nbytes": handle.nbytes}
    if isinstance(handle, CudaHandle):
        return "cuda", {"handle": list(handle.share)}
    return "cuda_raw", {
        "ipc_handle": handle.ipc_handle,
        "alloc_offset": handle.alloc_offset,
        "nbytes": handle.nbytes,
    }


def pickled_handle_to_wire(handle: KvHandle) -> msgpack.ExtType:
    """Encode a descriptor as 0.4.7 to 0.5.5 want it; LocalProtocolError as for 0.5.6.

    Descriptors of GPU tensors are not written in this form: LocalProtocolError.
    """
    if not isinstance(handle, CpuShmHandle):
        raise LocalProtocolError(
            f"handle: a {_place_to_wire(handle)[0]} descriptor cannot be sent to releases before "
            "0.5.6, only cpu_shm can; use --mode cpu"
        )
    _check_own(handle)
    longest = max(len(name.encode()) for name in (handle.shm_name, handle.device_uuid))
    if longest > _MAX_NAME_BYTES:
        raise LocalProtocolError(
            f"handle: a name of {longest} bytes, at most {_MAX_NAME_BYTES} can be sent"
        )
    values = {name: getattr(handle, name, None) for name in wrappers.FIELDS}
    return msgpack.ExtType(HANDLE_EXT_TYPE, wrappers.write_wrapper(values))


def _check_own(handle: KvHandle) -> None:
    if handle.dtype not in ITEM_BYTES:
        raise LocalProtocolError(f"handle: dtype {handle.dtype!r} is not known")
    if len(handle.shape) != len(handle.stride):
        raise LocalProtocolError(
            f"handle: shape {handle.shape} and stride {handle.stride} differ in rank"
        )
    if isinstance(handle, CpuShmHandle) and handle.span_bytes() > handle.nbytes:
        raise LocalProtocolError(
            f"handle: the tensor spans {handle.span_bytes()} bytes of {handle.shm_name}, "
            f"which has {handle.nbytes}"
        )
    try:
        _check_extent(handle)
        if isinstance(handle, CudaHandle):
            _share_from_wire(list(handle.share))
        elif isinstance(handle, CudaRawHandle):
            _memory_handle(handle.ipc_handle)
    except RemoteProtocolError as error:
        raise LocalProtocolError(str(error)) from error


def _check_extent(handle: KvHandle) -> None:
    """Raise RemoteProtocolError for a tensor that does not fit what the descriptor says it has."""
    if isinstance(handle, CudaRawHandle):
        nbytes = math.prod(handle.shape) * ITEM_BYTES[handle.dtype]
        if not _is_contiguous(handle) or handle.storage_offset or nbytes != handle.nbytes:
            raise RemoteProtocolError(
                f"handle: {handle.nbytes} bytes, shape {clip(handle.shape)}, stride "
                f"{clip(handle.stride)}, storage_offset {handle.storage_offset}; cuda_raw takes a "
                f"contiguous tensor at offset 0 that has exactly its bytes, {nbytes}"
            )
    elif handle.span_bytes() > handle.nbytes:
        raise RemoteProtocolError(
            f"handle: the tensor spans {handle.span_bytes()} bytes of {handle.nbytes}"
        )


def _is_contiguous(handle: CudaRawHandle) -> bool:
    """Tell whether strides are those of C order; an axis of one element may have any."""
    axes = zip(handle.shape, handle.stride, contiguous_strides(handle.shape), strict=True)
    return 0 in handle.shape or all(n == 1 or found == wanted for n, found, wanted in axes)


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


def _share_from_wire(value: Any) -> CudaShare:
    """Return torch's eight values of a shared storage, or raise RemoteProtocolError."""
    if not isinstance(value, list) or len(value) != 8:
        raise RemoteProtocolError(f"handle: handle is {clip(value)}, expected an array of 8")
    device, memory, nbytes, offset, counter, counter_offset, event, must_wait = value
    if not is_int(device) or not isinstance(must_wait, bool):
        raise RemoteProtocolError("handle: handle[0] must be an integer, handle[7] a bool")
    return (
        device,
        _opt_bytes(memory, "handle[1]"),
        _natural(nbytes, "handle[2]"),
        _natural(offset, "handle[3]"),
        _opt_bytes(counter, "handle[4]"),
        _natural(counter_offset, "handle[5]"),
        _opt_bytes(event, "handle[6]"),
        must_wait,
    )


def _opt_bytes(value: Any, place: str) -> bytes | None:
    if value is not None and (not isinstance(value, bytes) or len(value) > MAX_SHARE_BYTES):
        raise RemoteProtocolError(
            f"handle: {place} is {clip(value)}, expected nil or at most {MAX_SHARE_BYTES} bytes"
        )
    return value


def _memory_handle(value: Any) -> bytes:
    if not isinstance(value, bytes) or len(value) != MEMORY_HANDLE_BYTES:
        raise RemoteProtocolError(
            f"handle: ipc_handle is {clip(value)}, expected {MEMORY_HANDLE_BYTES} bytes"
        )
    return value


def handle_from_wire(value: Any) -> KvHandle:
    """Read one element of REGISTER_KV_CACHE's `kv_cache` array (0.5.6).

    Raises RemoteProtocolError for other types, versions and fields, as the real server does.
    """
    data = _ext_data(value)
    check_msgpack(data, "handle")
    try:
        unpacked = msgpack.unpackb(data)
    except Exception as error:
        raise RemoteProtocolError(f"handle: not msgpack ({type(error).__name__})") from error
    if not isinstance(unpacked, dict) or not {"type", "version"} <= set(unpacked):
        raise RemoteProtocolError("handle: expected a map with type and version")
    tag, version = unpacked["type"], unpacked["version"]
    form = _FORMS.get(tag) if isinstance(tag, str) else None
    # A map's `true` and 1.0 equal 1 in Python, but the server takes no other version than int 1.
    if form is None or type(version) is not int or version != DESCRIPTOR_VERSION:
        raise RemoteProtocolError(
            f"handle: type {clip(tag)} version {clip(version)}, "
            f"expected {', '.join(_FORMS)} version {DESCRIPTOR_VERSION}"
        )
    fields, build = form
    body = _exact_map(unpacked, {"type", "version", "metadata", *fields}, "handle")
    return build(body, _exact_map(body["metadata"], _METADATA_FIELDS, "handle.metadata"))


def pickled_handle_from_wire(value: Any) -> KvHandle:
    """Read one element of REGISTER_KV_CACHE's `kv_cache` array (0.4.7 to 0.5.5).

    Raises RemoteProtocolError for a pickle of anything but the CPU wrapper.
    """
    state = wrappers.read_wrapper(bytes(_ext_data(value)))
    return _shm_handle(state, state)


def _ext_data(value: Any) -> bytes:
    if not isinstance(value, msgpack.ExtType) or value.code != HANDLE_EXT_TYPE:
        raise RemoteProtocolError("handle: expected an extension of type 1")
    data: bytes = value.data
    return data


def _view_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked fields that say how a tensor lies in its memory."""
    dtype, uuid = metadata["dtype"], metadata["device_uuid"]
    if not isinstance(uuid, str):
        raise RemoteProtocolError("handle: device_uuid must be a string")
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise RemoteProtocolError(f"handle: dtype {clip(dtype)} is not known")
    shape, stride = (_naturals(metadata[name], name) for name in ("shape", "stride"))
    if len(shape) != len(stride):
        raise RemoteProtocolError("handle: shape and stride differ in rank")
    return {
        "dtype": dtype,
        "shape": shape,
        "stride": stride,
        "storage_offset": _natural(metadata["storage_offset"], "storage_offset"),
        "device_uuid": uuid,
    }


def _shm_handle(body: Mapping[str, Any], metadata: Mapping[str, Any]) -> KvHandle:
    name = body["shm_name"]
    if not isinstance(name, str):
        raise RemoteProtocolError("handle: shm_name must be a string")
    nbytes = _natural(body["nbytes"], "nbytes")
    return _fitting(CpuShmHandle(shm_name=name, nbytes=nbytes, **_view_of(metadata)))


def _cuda_handle(body: Mapping[str, Any], metadata: Mapping[str, Any]) -> KvHandle:
    return _fitting(CudaHandle(share=_share_from_wire(body["handle"]), **_view_of(metadata)))


def _cuda_raw_handle(body: Mapping[str, Any], metadata: Mapping[str, Any]) -> KvHandle:
    return _fitting(
        CudaRawHandle(
            ipc_handle=_memory_handle(body["ipc_handle"]),
            alloc_offset=_natural(body["alloc_offset"], "alloc_offset"),
            nbytes=_natural(body["nbytes"], "nbytes"),
            **_view_of(metadata),
        )
    )


def _fitting(handle: KvHandle) -> KvHandle:
    _check_extent(handle)
    return handle


_Build = Callable[[Mapping[str, Any], Mapping[str, Any]], KvHandle]

_FORMS: Mapping[str, tuple[tuple[str, ...], _Build]] = {
    "cpu_shm": (("shm_name", "nbytes"), _shm_handle),
    "cuda": (("handle",), _cuda_handle),
    "cuda_raw": (("ipc_handle", "alloc_offset", "nbytes"), _cuda_raw_handle),
}
"""Each type's own fields, and what makes a descriptor of them."""

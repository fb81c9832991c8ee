"""The inline tensor list of 0.5.7: chunks as one msgpack map, without pickle.

`{"version": 1, "tensors": [{"dtype", "shape", "data"}, ...]}`; `data` is C-contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from protocol.bounds import FEW, SLOT_ELEMENTS, check_msgpack
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.inline.tensor import InlineTensor
from protocol.values import clip, is_int_list

VERSION = 1
MAX_TENSORS = 1 << 16
"""The server takes no more in one message (0.5.7rc2)."""

_FIELDS = {"dtype", "shape", "data"}


def encode_envelope(tensors: Sequence[InlineTensor]) -> bytes:
    """Return the map's bytes; LocalProtocolError for more tensors than a server takes."""
    if len(tensors) > MAX_TENSORS:
        raise LocalProtocolError(
            f"{len(tensors)} inline tensors, one message carries {MAX_TENSORS}; "
            "send fewer chunks at a time"
        )
    frames = [
        {"dtype": tensor.dtype, "shape": list(tensor.shape), "data": tensor.data}
        for tensor in tensors
    ]
    try:
        packed: bytes = msgpack.packb({"version": VERSION, "tensors": frames})
    except (ValueError, OverflowError) as error:
        raise LocalProtocolError(f"inline tensors cannot be packed: {error}") from error
    return packed


def decode_envelope(stream: bytes | memoryview) -> list[InlineTensor]:
    """Read the map; RemoteProtocolError for anything else. The data are copied once."""
    check_msgpack(stream, "inline tensor list", MAX_TENSORS * SLOT_ELEMENTS + FEW)
    try:
        value = msgpack.unpackb(stream)
    except Exception as error:
        raise RemoteProtocolError(
            f"inline tensor list: {len(stream)} bytes are not msgpack ({type(error).__name__})"
        ) from error
    # A map's `true` and 1.0 equal 1 in Python, but the server takes no other version than int 1.
    if not isinstance(value, dict) or set(value) != {"version", "tensors"}:
        raise RemoteProtocolError(
            f"inline tensor list: got {clip(value)}, expected a map of version and tensors"
        )
    if type(value["version"]) is not int or value["version"] != VERSION:
        raise RemoteProtocolError(
            f"inline tensor list: version {clip(value['version'])}, expected {VERSION}"
        )
    tensors = value["tensors"]
    if not isinstance(tensors, list) or len(tensors) > MAX_TENSORS:
        raise RemoteProtocolError(
            f"inline tensor list: tensors is {clip(tensors)}, expected an array of at most "
            f"{MAX_TENSORS}"
        )
    return [_tensor(item, index) for index, item in enumerate(tensors)]


def _tensor(item: Any, index: int) -> InlineTensor:
    place = f"inline tensor {index}"
    if not isinstance(item, dict) or set(item) != _FIELDS:
        raise RemoteProtocolError(
            f"{place}: got {clip(item)}, expected a map of dtype, shape and data"
        )
    dtype, shape, data = item["dtype"], item["shape"], item["data"]
    if not isinstance(dtype, str) or not is_int_list(shape) or not isinstance(data, bytes):
        raise RemoteProtocolError(
            f"{place}: expected dtype as a string, shape as an array of integers, data as bytes"
        )
    try:
        return InlineTensor(dtype, tuple(shape), data)
    except LocalProtocolError as error:
        raise RemoteProtocolError(f"{place}: {error}") from error

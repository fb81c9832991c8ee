"""The inline tensor list as torch and pickle would write it, written without either.

Writing is concatenation: constant opcodes, a few numbers, and the caller's buffers, joined once.
`protocol.inline.reading` says what the stream consists of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from protocol.errors import LocalProtocolError
from protocol.inline.tensor import InlineTensor
from protocol.inline.torchnames import (
    DTYPE_OF_CLASS,
    LOAD_STORAGE,
    MAGIC,
    ORDERED_DICT,
    REBUILD_NEWER,
    REBUILD_TENSOR,
    VERSION,
    class_item_bytes,
    class_of,
    is_newer,
)
from protocol.pickles import Global, short_int

_MAX_STREAM_BYTES = 2**32 - 1
"""The stream travels as one msgpack bin, whose length has 32 bits; so has BINBYTES."""

_MAX_OVERHEAD_BYTES = 1024
"""Around the data of one tensor: a blob's head of 330 bytes, three names, numbers for each axis."""


def _text(value: str) -> bytes:
    raw = value.encode("ascii")
    return b"X" + len(raw).to_bytes(4, "little") + raw


def _int_tuple(values: Sequence[int]) -> bytes:
    return b"(" + b"".join(map(short_int, values)) + b"t" if values else b")"


def _stack_global(name: Global) -> bytes:
    """Return two SHORT_BINUNICODE, STACK_GLOBAL, and MEMOIZE for the BINGETs that follow."""
    parts = [part.encode("ascii") for part in (name.module, name.name)]
    return b"".join(b"\x8c" + bytes([len(part)]) + part for part in parts) + b"\x93\x94"


_BLOB_PREFIX = (
    b"\x80\x02\x8a\x0a" + MAGIC.to_bytes(10, "little") + b"."
    b"\x80\x02" + short_int(VERSION) + b"."
    b"\x80\x02}("
    + (_text("protocol_version") + short_int(VERSION))
    + (_text("little_endian") + b"\x88")
    + (_text("type_sizes") + b"}(")
    + (_text("short") + short_int(2) + _text("int") + short_int(4) + _text("long") + short_int(4))
    + b"uu."
)


class _Names:
    """The names of one stream: spelled out and memoized at first use, then fetched by BINGET."""

    def __init__(self) -> None:
        self._memo: dict[Global, int] = {}

    def opcodes(self, name: Global) -> bytes:
        """Return what pushes a name."""
        if name in self._memo:
            return bytes((ord("h"), self._memo[name]))
        self._memo[name] = len(self._memo)
        return _stack_global(name)


def _blob_head(tensor: InlineTensor, key: str) -> bytes:
    """Return everything of a blob that precedes the raw bytes."""
    storage = class_of(tensor.dtype)
    numel = len(tensor.data) // class_item_bytes(DTYPE_OF_CLASS[storage])
    return b"".join(
        (
            _BLOB_PREFIX,
            b"\x80\x02(" + _text("storage"),
            f"c{storage.module}\n{storage.name}\n".encode("ascii"),
            _text(key) + _text("cpu") + short_int(numel) + b"NtQ.",
            b"\x80\x02]" + _text(key) + b"a.",
            numel.to_bytes(8, "little"),
        )
    )


def _contiguous_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(
        math.prod(max(size, 1) for size in shape[axis + 1 :]) for axis in range(len(shape))
    )


def encode_tensor_list(tensors: Sequence[InlineTensor]) -> bytes:
    """Return the stream that `pickle.loads` beside torch turns into equal tensors.

    FRAME is left out: it only helps readers of files, and no unpickler requires it.
    """
    size = sum(len(tensor.data) + _MAX_OVERHEAD_BYTES for tensor in tensors)
    if size > _MAX_STREAM_BYTES:
        raise LocalProtocolError(
            f"encode_tensor_list: {len(tensors)} tensors need up to {size} bytes, but one message "
            f"carries {_MAX_STREAM_BYTES}; send fewer chunks at a time"
        )
    names = _Names()
    parts: list[bytes | memoryview] = [b"\x80\x04]("]
    for index, tensor in enumerate(tensors):
        newer = is_newer(tensor.dtype)
        head = _blob_head(tensor, key=str(index))
        view = _int_tuple(tensor.shape) + _int_tuple(_contiguous_stride(tensor.shape))
        rebuild = names.opcodes(REBUILD_NEWER if newer else REBUILD_TENSOR)
        load, hooks = names.opcodes(LOAD_STORAGE), names.opcodes(ORDERED_DICT)
        dtype = names.opcodes(Global("torch", tensor.dtype)) if newer else b""
        parts += (
            rebuild + b"(" + load,
            b"B" + (len(head) + len(tensor.data)).to_bytes(4, "little"),
            head,
            tensor.data,
            b"\x85R" + short_int(0) + view + b"\x89" + hooks + b")R" + dtype + b"tR",
        )
    parts.append(b"e.")
    return b"".join(parts)

"""The inline tensor list: how KV chunks travel when there is no shared memory.

In engine-driven *inline* transfer the chunks are the bytes of ``pickle.dumps([tensor, ...])``
(protocol 4, CPU torch tensors). This module owns that byte stream in both directions. It must
know neither torch nor ``pickle``: a peer's stream is never unpickled, so no byte of it can name
code to run.

The stream has two layers. The outer pickle is a list of calls::

    torch._utils._rebuild_tensor_v2(
        torch.storage._load_from_bytes(blob), offset, shape, stride, requires_grad, OrderedDict())

and every blob is torch's legacy file: five short pickles (magic number, version, a dict about
the sender, the persistent id of one storage, the list of its keys), then the element count as
little-endian int64, then the raw bytes. torch has no storage class for its
newer dtypes, such as the 8-bit floats: their storage is untyped, counted in bytes, and the call is
``_rebuild_tensor_v3`` with the dtype as a seventh argument. (torch 2.13 writes such a list and
cannot read it.)

Writing is concatenation: constant opcodes, a few numbers, and the caller's buffers, joined once.

Reading is a stack machine, driven by a table of opcodes, that can make nothing but integers,
text, byte views, booleans, None, tuples, lists, dicts and tokens for allow-listed names. One
machine reads both layers; a ``Grammar`` says which names, calls and persistent ids are legal in
each, so a blob cannot hold another blob. Calls yield descriptions (a storage, a view of it). Only
when the list is complete and has been weighed are strided views gathered; contiguous ones stay
slices of the stream.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from protocol.dtypes import ITEM_BYTES
from protocol.errors import LocalProtocolError
from protocol.pickles import Global, Grammar, read_pickle, refusal, short_int
from protocol.storages import (
    DTYPE_OF_CLASS,
    NEWER_DTYPES,
    UNTYPED,
    VIEW_FORMATS,
    class_item_bytes,
    class_of,
    is_newer,
)

# KV objects have rank 3 or 4. The rest is room for a peer's odd views, and small enough that
# nested iteration over the axes stays shallow.
_MAX_RANK = 16
# The stream travels as one msgpack bin, whose length has 32 bits; so has BINBYTES.
_MAX_STREAM_BYTES = 2**32 - 1
# Around the data of one tensor: a blob's head of 330 bytes, three names, numbers for each axis.
_MAX_OVERHEAD_BYTES = 1024
# torch counts elements and bytes in int64.
_MAX_COUNT = 2**63 - 1
# torch writes about 50 opcodes for a tensor of rank 4 and two more for each further axis.
_OPCODES_PER_TENSOR = 128
# torch memoizes 18 values for the first tensor, 9 or 10 for each later one.
_MEMO_PER_TENSOR = 32
# One call's arguments with shape and stride still open need 6 + _MAX_RANK entries.
_STACK_SLACK = 64
# The longest of the five pickles in a blob, the dict about the sender, has about 25 opcodes.
_BLOB_OPCODES = 64
# Gathered views may expand (stride 0) or overlap; more than the stream itself plus this is refused.
_GATHER_SLACK_BYTES = 1 << 20

_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001


_REBUILD_TENSOR = Global("torch._utils", "_rebuild_tensor_v2")
_REBUILD_NEWER = Global("torch._utils", "_rebuild_tensor_v3")
_LOAD_STORAGE = Global("torch.storage", "_load_from_bytes")
_ORDERED_DICT = Global("collections", "OrderedDict")


@dataclass(frozen=True, slots=True)
class InlineTensor:
    """A CPU tensor as its C-contiguous raw bytes; ``dtype`` is torch's name without prefix."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview

    def __post_init__(self) -> None:
        if self.dtype not in ITEM_BYTES:
            raise LocalProtocolError(
                f"InlineTensor: dtype {self.dtype!r} is not one of {', '.join(ITEM_BYTES)}"
            )
        if not isinstance(self.shape, tuple) or not _is_shape(self.shape):
            raise LocalProtocolError(
                f"InlineTensor: shape {self.shape!r} must be a tuple of at most {_MAX_RANK} "
                f"non-negative integers that span less than 2**63 elements"
            )
        expected = math.prod(self.shape) * ITEM_BYTES[self.dtype]
        if _byte_view(self.data, "InlineTensor data").nbytes != expected:
            raise LocalProtocolError(
                f"InlineTensor: {len(self.data)} bytes of data, but {self.dtype} of shape "
                f"{self.shape} has {expected}"
            )


def _is_shape(values: tuple[object, ...]) -> bool:
    """Whether a contiguous tensor of these sizes exists, at up to 8 bytes an element."""
    sizes = [value for value in values if type(value) is int and value >= 0]
    if len(sizes) != len(values) or len(sizes) > _MAX_RANK:
        return False
    return math.prod(max(size, 1) for size in sizes) <= _MAX_COUNT // 8


def _byte_view(data: bytes | memoryview, place: str) -> memoryview:
    view = memoryview(data)
    if view.ndim != 1 or view.itemsize != 1 or not view.c_contiguous:
        raise LocalProtocolError(
            f"{place}: a memoryview of format {view.format!r} and shape {view.shape} is not "
            f"plain bytes; make it contiguous and cast('B') it"
        )
    return view.cast("B")


# --- writing -------------------------------------------------------------------------------------


def _text(value: str) -> bytes:
    raw = value.encode("ascii")
    return b"X" + len(raw).to_bytes(4, "little") + raw


def _int_tuple(values: Sequence[int]) -> bytes:
    return b"(" + b"".join(map(short_int, values)) + b"t" if values else b")"


def _stack_global(name: Global) -> bytes:
    """Two SHORT_BINUNICODE, STACK_GLOBAL, and MEMOIZE for the BINGETs that follow."""
    parts = [part.encode("ascii") for part in (name.module, name.name)]
    return b"".join(b"\x8c" + bytes([len(part)]) + part for part in parts) + b"\x93\x94"


_BLOB_PREFIX = (
    b"\x80\x02\x8a\x0a" + _MAGIC.to_bytes(10, "little") + b"."
    b"\x80\x02" + short_int(_VERSION) + b"."
    b"\x80\x02}("
    + (_text("protocol_version") + short_int(_VERSION))
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
        """What pushes a name."""
        if name in self._memo:
            return bytes((ord("h"), self._memo[name]))
        self._memo[name] = len(self._memo)
        return _stack_global(name)


def _blob_head(tensor: InlineTensor, key: str) -> bytes:
    """Everything of a blob that precedes the raw bytes."""
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
    """The stream that ``pickle.loads`` beside torch turns into equal tensors.

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
        rebuild = names.opcodes(_REBUILD_NEWER if newer else _REBUILD_TENSOR)
        load, hooks = names.opcodes(_LOAD_STORAGE), names.opcodes(_ORDERED_DICT)
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


# --- reading: the meaning ------------------------------------------------------------------------


class _Hooks(Enum):
    """The value of ``OrderedDict()``: a tensor has no backward hooks."""

    NONE = "no backward hooks"


@dataclass(frozen=True, slots=True)
class _StorageId:
    """`dtype` may be `UNTYPED`."""

    dtype: str
    key: str
    numel: int


@dataclass(frozen=True, slots=True)
class _Storage:
    """`dtype` may be `UNTYPED`, but not in a view."""

    dtype: str
    numel: int
    data: memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """A tensor as torch describes it; its span lies within the storage."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * ITEM_BYTES[self.storage.dtype]


def _as_count(value: object, place: str) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_COUNT:
        raise refusal(place, value, "an integer from 0 to 2**63-1")
    return value


def _as_sizes(value: object, place: str) -> tuple[int, ...]:
    if not isinstance(value, tuple):
        raise refusal(place, value, "a tuple of integers")
    return tuple(_as_count(item, place) for item in value)


def _no_persistent_id(value: object) -> object:
    raise refusal("persistent id", value, "none outside a storage blob")


def _storage_id(value: object) -> _StorageId:
    place = "persistent id of the storage"
    if not isinstance(value, tuple) or len(value) != 6:
        raise refusal(place, value, "a tuple of six")
    kind, storage, key, device, numel, views = value
    dtype = DTYPE_OF_CLASS.get(storage) if isinstance(storage, Global) else None
    if dtype is None:
        raise refusal(place, storage, "a storage class")
    if not isinstance(key, str):
        raise refusal(place, key, "the storage's key as text")
    for got, expected in ((kind, "storage"), (device, "cpu"), (views, None)):
        if type(got) is not type(expected) or got != expected:
            raise refusal(place, got, repr(expected))
    return _StorageId(dtype, key, _as_count(numel, place))


_BLOB_GRAMMAR = Grammar(
    names=frozenset(DTYPE_OF_CLASS),
    calls={},
    persistent=_storage_id,
    max_opcodes=_BLOB_OPCODES,
    max_stack=_BLOB_OPCODES,
    max_memo=_BLOB_OPCODES,
)


def _check_blob_head(magic: object, version: object, sender: object) -> None:
    order = sender.get("little_endian") if isinstance(sender, dict) else sender
    for place, got, expected in (
        ("magic number of a blob", magic, _MAGIC),
        ("version of a blob", version, _VERSION),
        ("little_endian of a blob", order, True),
    ):
        if type(got) is not type(expected) or got != expected:
            raise refusal(place, got, repr(expected))


def _load_storage(arguments: tuple[object, ...]) -> _Storage:
    if len(arguments) != 1 or not isinstance(arguments[0], memoryview):
        raise refusal("_load_from_bytes", arguments, "one argument of bytes")
    rest = arguments[0]
    magic, rest = read_pickle(rest, _BLOB_GRAMMAR)
    version, rest = read_pickle(rest, _BLOB_GRAMMAR)
    sender, rest = read_pickle(rest, _BLOB_GRAMMAR)
    storage, rest = read_pickle(rest, _BLOB_GRAMMAR)
    keys, rest = read_pickle(rest, _BLOB_GRAMMAR)
    _check_blob_head(magic, version, sender)
    if not isinstance(storage, _StorageId):
        raise refusal("object of a blob", storage, "one storage")
    if not isinstance(keys, list) or len(keys) != 1 or keys[0] != storage.key:
        raise refusal("storage keys of a blob", keys, f"a list of {storage.key!r} alone")
    expected = 8 + storage.numel * class_item_bytes(storage.dtype)
    if rest.nbytes != expected:
        raise refusal("contents of a blob", rest, f"{expected} bytes for {storage}")
    (numel,) = struct.unpack_from("<q", rest)
    if numel != storage.numel:
        raise refusal("element count of a blob", numel, str(storage.numel))
    return _Storage(storage.dtype, numel, rest[8:])


def _rebuild_view(arguments: tuple[object, ...]) -> _View:
    place = _REBUILD_TENSOR.name
    if len(arguments) != 6:
        raise refusal(place, arguments, "six arguments")
    storage = arguments[0]
    if not isinstance(storage, _Storage) or storage.dtype == UNTYPED:
        raise refusal(place, storage, "a storage of a dtype")
    return _view_of(storage, arguments[1:], place)


def _rebuild_newer_view(arguments: tuple[object, ...]) -> _View:
    place = _REBUILD_NEWER.name
    if len(arguments) != 7:
        raise refusal(place, arguments, "seven arguments")
    storage, dtype = arguments[0], arguments[6]
    if not isinstance(storage, _Storage) or storage.dtype != UNTYPED:
        raise refusal(place, storage, "an untyped storage")
    if not isinstance(dtype, Global) or dtype not in NEWER_DTYPES:
        raise refusal(place, dtype, "a dtype without a storage class of its own")
    numel = storage.numel // ITEM_BYTES[dtype.name]
    return _view_of(_Storage(dtype.name, numel, storage.data), arguments[1:6], place)


def _view_of(storage: _Storage, arguments: tuple[object, ...], place: str) -> _View:
    raw_offset, raw_shape, raw_stride, requires_grad, hooks = arguments
    if not isinstance(requires_grad, bool) or hooks is not _Hooks.NONE:
        raise refusal(place, hooks, "a boolean requires_grad and an empty OrderedDict")
    offset = _as_count(raw_offset, "storage offset")
    shape = _as_sizes(raw_shape, "shape")
    stride = _as_sizes(raw_stride, "stride")
    if len(shape) != len(stride) or not _is_shape(shape):
        raise refusal(
            place,
            str(shape),
            f"at most {_MAX_RANK} sizes, below 2**60 in all, and one for each of {stride}",
        )
    end = offset + 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if 0 not in shape and end > storage.numel:
        raise refusal(place, end, f"a view that ends within {storage.numel} elements")
    return _View(storage=storage, offset=offset, shape=shape, stride=stride)


def _no_hooks(arguments: tuple[object, ...]) -> _Hooks:
    if arguments:
        raise refusal("OrderedDict", arguments, "no arguments")
    return _Hooks.NONE


_OUTER_CALLS: Mapping[Global, Callable[[tuple[object, ...]], object]] = {
    _REBUILD_TENSOR: _rebuild_view,
    _REBUILD_NEWER: _rebuild_newer_view,
    _LOAD_STORAGE: _load_storage,
    _ORDERED_DICT: _no_hooks,
}


def _outer_grammar(max_tensors: int) -> Grammar:
    return Grammar(
        names=NEWER_DTYPES | frozenset(_OUTER_CALLS),
        calls=_OUTER_CALLS,
        persistent=_no_persistent_id,
        max_opcodes=(1 + max_tensors) * _OPCODES_PER_TENSOR,
        max_stack=max_tensors + _STACK_SLACK,
        max_memo=(1 + max_tensors) * _MEMO_PER_TENSOR,
    )


# --- reading: the bytes --------------------------------------------------------------------------

_Axis = tuple[int, int]  # size, stride in elements


def _merged_axes(view: _View) -> list[_Axis]:
    """The axes with neighbours that step as one merged; [] or [(n, 1)] means contiguous."""
    axes: list[_Axis] = []
    for size, step in zip(view.shape, view.stride, strict=True):
        if size == 1:
            continue
        if axes and axes[-1][1] == size * step:
            axes[-1] = (axes[-1][0] * size, step)
        else:
            axes.append((size, step))
    return axes


def _is_contiguous(view: _View) -> bool:
    axes = _merged_axes(view)
    return view.numel == 0 or not axes or (len(axes) == 1 and axes[0][1] == 1)


def _run_starts(axes: Sequence[_Axis], start: int) -> Iterator[int]:
    """The element offsets of the innermost runs, in row-major order of the outer axes."""
    if not axes:
        yield start
        return
    size, step = axes[0]
    for index in range(size):
        yield from _run_starts(axes[1:], start + index * step)


def _gathered(view: _View) -> memoryview:
    """The row-major bytes of a strided view, copied run by run of its innermost axis."""
    view_format = VIEW_FORMATS[ITEM_BYTES[view.storage.dtype]]
    source = view.storage.data.cast(view_format)
    result = bytearray(view.nbytes)
    target = memoryview(result).cast(view_format)
    *outer, (count, step) = _merged_axes(view)
    position = 0
    for start in _run_starts(outer, view.offset):
        if step:
            run = source[start : start + (count - 1) * step + 1 : step]
        else:
            run = memoryview(bytes(source[start : start + 1]) * count).cast(view_format)
        target[position : position + count] = run
        position += count
    return memoryview(result).toreadonly()


def _sliced(view: _View) -> memoryview:
    start = view.offset * ITEM_BYTES[view.storage.dtype]
    return view.storage.data[start : start + view.nbytes]


def decode_tensor_list(
    stream: bytes | memoryview, *, max_tensors: int = 4096
) -> list[InlineTensor]:
    """The tensors of a peer's stream, or RemoteProtocolError.

    The data of a contiguous tensor is a view into ``stream``; a strided one is copied. The
    default of ``max_tensors`` allows a million-token request in chunks of 256.
    """
    whole = _byte_view(stream, "inline tensor list")
    views, rest = read_pickle(whole, _outer_grammar(max_tensors))
    if rest.nbytes:
        raise refusal("after the list", rest, "the end of the stream")
    if not isinstance(views, list) or len(views) > max_tensors:
        raise refusal("the value", views, f"a list of at most {max_tensors} tensors")
    tensors: list[InlineTensor] = []
    budget = whole.nbytes + _GATHER_SLACK_BYTES
    for view in views:
        if not isinstance(view, _View):
            raise refusal("an item of the list", view, "a tensor")
        contiguous = _is_contiguous(view)
        budget -= 0 if contiguous else view.nbytes
        if budget < 0:
            raise refusal("strided tensors", view.nbytes, "no more bytes than the stream has")
        data = _sliced(view) if contiguous else _gathered(view)
        tensors.append(InlineTensor(view.storage.dtype, view.shape, data))
    return tensors

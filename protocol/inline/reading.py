"""The inline tensor list that torch and pickle write, read without either.

In engine-driven *inline* transfer the chunks are the bytes of `pickle.dumps([tensor, ...])`
(protocol 4, CPU torch tensors).  A peer's stream is never unpickled, so no byte of it can name code
to run.  The stream has two layers.  The outer pickle is a list of calls:

    torch._utils._rebuild_tensor_v2(
        torch.storage._load_from_bytes(blob), offset, shape, stride, requires_grad, OrderedDict())

and every blob is torch's legacy file: five short pickles (magic number, version, a dict about
the sender, the persistent id of one storage, the list of its keys), then the element count as
little-endian int64, then the raw bytes.  torch has no storage class for its newer dtypes, such as
the 8-bit floats: their storage is untyped, counted in bytes, and the call is `_rebuild_tensor_v3`
with the dtype as a seventh argument.  (torch 2.13 writes such a list and cannot read it.)

`protocol.pickles` reads both layers; a `Grammar` says which names, calls and persistent ids are
legal in each, so a blob cannot hold another blob.  Calls yield descriptions (a storage, a view of
it).  Strided views are gathered only when the list is complete and has been weighed; contiguous
ones stay slices of the stream.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from protocol.dtypes import ITEM_BYTES
from protocol.inline.tensor import MAX_COUNT, MAX_RANK, InlineTensor, byte_view, is_shape
from protocol.inline.torchnames import (
    DTYPE_OF_CLASS,
    LOAD_STORAGE,
    MAGIC,
    NEWER_DTYPES,
    ORDERED_DICT,
    REBUILD_NEWER,
    REBUILD_TENSOR,
    UNTYPED,
    VERSION,
    class_item_bytes,
)
from protocol.inline.views import Storage, View, gathered, is_contiguous, sliced
from protocol.pickles import Global, Grammar, read_pickle, refusal

_OPCODES_PER_TENSOR = 128
"""torch writes about 50 for a tensor of rank 4 and two more for each further axis."""

_MEMO_PER_TENSOR = 32
"""torch memoizes 18 values for the first tensor, 9 or 10 for each later one."""

_STACK_SLACK = 64
"""One call's arguments with shape and stride still open need 6 + MAX_RANK entries."""

_BLOB_OPCODES = 64
"""The longest of the five pickles in a blob, the dict about the sender, has about 25."""

_GATHER_SLACK_BYTES = 1 << 20
"""Gathered views may expand (stride 0) or overlap: to no more than the stream itself and this."""


class _Hooks(Enum):
    """The value of `OrderedDict()`: a tensor has no backward hooks."""

    NONE = "no backward hooks"


@dataclass(frozen=True, slots=True)
class _StorageId:
    """The persistent id of a storage; `dtype` may be `UNTYPED`."""

    dtype: str
    key: str
    numel: int


def _as_count(value: object, place: str) -> int:
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
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
        ("magic number of a blob", magic, MAGIC),
        ("version of a blob", version, VERSION),
        ("little_endian of a blob", order, True),
    ):
        if type(got) is not type(expected) or got != expected:
            raise refusal(place, got, repr(expected))


def _load_storage(arguments: tuple[object, ...]) -> Storage:
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
    return Storage(storage.dtype, numel, rest[8:])


def _rebuild_view(arguments: tuple[object, ...]) -> View:
    place = REBUILD_TENSOR.name
    if len(arguments) != 6:
        raise refusal(place, arguments, "six arguments")
    storage = arguments[0]
    if not isinstance(storage, Storage) or storage.dtype == UNTYPED:
        raise refusal(place, storage, "a storage of a dtype")
    return _view_of(storage, arguments[1:], place)


def _rebuild_newer_view(arguments: tuple[object, ...]) -> View:
    place = REBUILD_NEWER.name
    if len(arguments) != 7:
        raise refusal(place, arguments, "seven arguments")
    storage, dtype = arguments[0], arguments[6]
    if not isinstance(storage, Storage) or storage.dtype != UNTYPED:
        raise refusal(place, storage, "an untyped storage")
    if not isinstance(dtype, Global) or dtype not in NEWER_DTYPES:
        raise refusal(place, dtype, "a dtype without a storage class of its own")
    numel = storage.numel // ITEM_BYTES[dtype.name]
    return _view_of(Storage(dtype.name, numel, storage.data), arguments[1:6], place)


def _view_of(storage: Storage, arguments: tuple[object, ...], place: str) -> View:
    raw_offset, raw_shape, raw_stride, requires_grad, hooks = arguments
    if not isinstance(requires_grad, bool) or hooks is not _Hooks.NONE:
        raise refusal(place, hooks, "a boolean requires_grad and an empty OrderedDict")
    offset = _as_count(raw_offset, "storage offset")
    shape = _as_sizes(raw_shape, "shape")
    stride = _as_sizes(raw_stride, "stride")
    if len(shape) != len(stride) or not is_shape(shape):
        raise refusal(
            place,
            str(shape),
            f"at most {MAX_RANK} sizes, below 2**60 in all, and one for each of {stride}",
        )
    end = offset + 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if 0 not in shape and end > storage.numel:
        raise refusal(place, end, f"a view that ends within {storage.numel} elements")
    return View(storage=storage, offset=offset, shape=shape, stride=stride)


def _no_hooks(arguments: tuple[object, ...]) -> _Hooks:
    if arguments:
        raise refusal("OrderedDict", arguments, "no arguments")
    return _Hooks.NONE


_OUTER_CALLS: Mapping[Global, Callable[[tuple[object, ...]], object]] = {
    REBUILD_TENSOR: _rebuild_view,
    REBUILD_NEWER: _rebuild_newer_view,
    LOAD_STORAGE: _load_storage,
    ORDERED_DICT: _no_hooks,
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


def decode_tensor_list(
    stream: bytes | memoryview, *, max_tensors: int = 4096
) -> list[InlineTensor]:
    """Return the tensors of a peer's stream, or raise RemoteProtocolError.

    The data of a contiguous tensor is a view into `stream`; a strided one is copied.  The
    default of `max_tensors` allows a million-token request in chunks of 256.
    """
    whole = byte_view(stream, "inline tensor list")
    views, rest = read_pickle(whole, _outer_grammar(max_tensors))
    if rest.nbytes:
        raise refusal("after the list", rest, "the end of the stream")
    if not isinstance(views, list) or len(views) > max_tensors:
        raise refusal("the value", views, f"a list of at most {max_tensors} tensors")
    tensors: list[InlineTensor] = []
    budget = whole.nbytes + _GATHER_SLACK_BYTES
    for view in views:
        if not isinstance(view, View):
            raise refusal("an item of the list", view, "a tensor")
        contiguous = is_contiguous(view)
        budget -= 0 if contiguous else view.nbytes
        if budget < 0:
            raise refusal("strided tensors", view.nbytes, "no more bytes than the stream has")
        data = sliced(view) if contiguous else gathered(view)
        tensors.append(InlineTensor(view.storage.dtype, view.shape, data))
    return tensors

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
little-endian int64, then the raw bytes.

Writing is concatenation: constant opcodes, a few numbers, and the caller's buffers, joined once.

Reading is a stack machine, driven by a table of opcodes, that can make nothing but integers,
text, byte views, booleans, None, tuples, lists, dicts and tokens for allow-listed names. One
machine reads both layers; a ``_Grammar`` says which names, calls and persistent ids are legal in
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
from typing import Literal

from protocol.errors import LocalProtocolError, RemoteProtocolError

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
# The longest legal text is a 20-digit storage key.
_MAX_TEXT_BYTES = 256
# torch's magic number takes 10 bytes, an int64 at most 9.
_MAX_INT_BYTES = 16
# Gathered views may expand (stride 0) or overlap; more than the stream itself plus this is refused.
_GATHER_SLACK_BYTES = 1 << 20

_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001


@dataclass(frozen=True, slots=True)
class _Global:
    """A name in the stream: a token to compare, never something to import."""

    module: str
    name: str


@dataclass(frozen=True, slots=True)
class _Dtype:
    """One element type: its storage class in the stream, and how memoryview spells its width."""

    storage: _Global
    item_bytes: int
    view_format: Literal["B", "H", "I"]


_DTYPES: Mapping[str, _Dtype] = {
    "float16": _Dtype(_Global("torch", "HalfStorage"), 2, "H"),
    "bfloat16": _Dtype(_Global("torch", "BFloat16Storage"), 2, "H"),
    "float32": _Dtype(_Global("torch", "FloatStorage"), 4, "I"),
    "uint8": _Dtype(_Global("torch", "ByteStorage"), 1, "B"),
    "int8": _Dtype(_Global("torch", "CharStorage"), 1, "B"),
}
_DTYPE_OF_STORAGE: Mapping[_Global, str] = {d.storage: name for name, d in _DTYPES.items()}

_REBUILD_TENSOR = _Global("torch._utils", "_rebuild_tensor_v2")
_LOAD_STORAGE = _Global("torch.storage", "_load_from_bytes")
_ORDERED_DICT = _Global("collections", "OrderedDict")


@dataclass(frozen=True, slots=True)
class InlineTensor:
    """A CPU tensor as its C-contiguous raw bytes; ``dtype`` is torch's name without prefix."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            raise LocalProtocolError(
                f"InlineTensor: dtype {self.dtype!r} is not one of {', '.join(_DTYPES)}"
            )
        if not isinstance(self.shape, tuple) or not _is_shape(self.shape):
            raise LocalProtocolError(
                f"InlineTensor: shape {self.shape!r} must be a tuple of at most {_MAX_RANK} "
                f"non-negative integers that span less than 2**63 elements"
            )
        expected = math.prod(self.shape) * _DTYPES[self.dtype].item_bytes
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


def _int(value: int) -> bytes:
    """The shortest opcode for a count: BININT1, BININT2, BININT or LONG1."""
    if value < 1 << 8:
        return b"K" + value.to_bytes(1, "little")
    if value < 1 << 16:
        return b"M" + value.to_bytes(2, "little")
    if value < 1 << 31:
        return b"J" + value.to_bytes(4, "little")
    width = value.bit_length() // 8 + 1  # one bit more than the value: LONG1 is signed
    return b"\x8a" + width.to_bytes(1, "little") + value.to_bytes(width, "little")


def _int_tuple(values: Sequence[int]) -> bytes:
    return b"(" + b"".join(map(_int, values)) + b"t" if values else b")"


def _stack_global(name: _Global) -> bytes:
    """Two SHORT_BINUNICODE, STACK_GLOBAL, and MEMOIZE for the BINGETs that follow."""
    parts = [part.encode("ascii") for part in (name.module, name.name)]
    return b"".join(b"\x8c" + bytes([len(part)]) + part for part in parts) + b"\x93\x94"


_BLOB_PREFIX = (
    b"\x80\x02\x8a\x0a" + _MAGIC.to_bytes(10, "little") + b"."
    b"\x80\x02" + _int(_VERSION) + b"."
    b"\x80\x02}("
    + (_text("protocol_version") + _int(_VERSION))
    + (_text("little_endian") + b"\x88")
    + (_text("type_sizes") + b"}(")
    + (_text("short") + _int(2) + _text("int") + _int(4) + _text("long") + _int(4))
    + b"uu."
)
_OUTER_NAMES = (_REBUILD_TENSOR, _LOAD_STORAGE, _ORDERED_DICT)
# The first tensor spells its three names out and memoizes them; the others fetch them by BINGET.
_SPELLED_NAMES = tuple(_stack_global(name) for name in _OUTER_NAMES)
_FETCHED_NAMES = tuple(bytes((ord("h"), index)) for index in range(len(_OUTER_NAMES)))


def _blob_head(tensor: InlineTensor, key: str) -> bytes:
    """Everything of a blob that precedes the raw bytes."""
    storage = _DTYPES[tensor.dtype].storage
    numel = math.prod(tensor.shape)
    return b"".join(
        (
            _BLOB_PREFIX,
            b"\x80\x02(" + _text("storage"),
            f"c{storage.module}\n{storage.name}\n".encode("ascii"),
            _text(key) + _text("cpu") + _int(numel) + b"NtQ.",
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
    parts: list[bytes | memoryview] = [b"\x80\x04]("]
    for index, tensor in enumerate(tensors):
        rebuild, load, hooks = _FETCHED_NAMES if index else _SPELLED_NAMES
        head = _blob_head(tensor, key=str(index))
        view = _int_tuple(tensor.shape) + _int_tuple(_contiguous_stride(tensor.shape))
        parts += (
            rebuild + b"(" + load,
            b"B" + (len(head) + len(tensor.data)).to_bytes(4, "little"),
            head,
            tensor.data,
            b"\x85R" + _int(0) + view + b"\x89" + hooks + b")RtR",
        )
    parts.append(b"e.")
    return b"".join(parts)


# --- reading: the machine ------------------------------------------------------------------------


def _shown(value: object) -> str:
    """A short description that never walks into containers, which a peer can make huge."""
    if isinstance(value, memoryview):
        return f"{value.nbytes} bytes"
    if value is None or isinstance(value, (int, str, _Global)):
        return repr(value)[:80]
    return f"a {type(value).__name__}"


def _refusal(place: str, got: object, expected: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"inline tensor list: {place}: got {_shown(got)}, expected {expected}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grammar:
    """What one layer of the stream may name, call and refer to, and how large it may grow."""

    names: frozenset[_Global]
    calls: Mapping[_Global, Callable[[tuple[object, ...]], object]]
    persistent: Callable[[object], object]
    max_opcodes: int
    max_stack: int
    max_memo: int


class _Machine:
    """The state of one pickle being read: a cursor, a stack with marks, and a memo."""

    __slots__ = ("grammar", "marks", "memo", "position", "stack", "stream")

    def __init__(self, stream: memoryview, grammar: _Grammar) -> None:
        self.stream = stream
        self.grammar = grammar
        self.position = 0
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}

    def refusal(self, got: object, expected: str) -> RemoteProtocolError:
        return _refusal(f"before byte {self.position}", got, expected)

    def take(self, count: int) -> memoryview:
        end = self.position + count
        if end > self.stream.nbytes:
            left = self.stream.nbytes - self.position
            raise self.refusal(f"{left} bytes to the end", f"{count} more bytes")
        taken = self.stream[self.position : end]
        self.position = end
        return taken

    def unsigned(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def push(self, value: object) -> None:
        if len(self.stack) >= self.grammar.max_stack:
            raise self.refusal(value, f"at most {self.grammar.max_stack} values on the stack")
        self.stack.append(value)

    def push_mark(self) -> None:
        if len(self.marks) >= self.grammar.max_stack:
            raise self.refusal("MARK", f"at most {self.grammar.max_stack} open marks")
        self.marks.append(len(self.stack))

    def top(self) -> object:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise self.refusal("an empty stack", "a value to use")
        return self.stack[-1]

    def pop(self) -> object:
        value = self.top()
        self.stack.pop()
        return value

    def pop_to_mark(self) -> list[object]:
        if not self.marks:
            raise self.refusal("no open mark", "a MARK before its closing opcode")
        mark = self.marks.pop()
        values = self.stack[mark:]
        del self.stack[mark:]
        return values

    def remember(self, index: int) -> None:
        self.memo[index] = self.top()
        if len(self.memo) > self.grammar.max_memo:
            raise self.refusal(index, f"at most {self.grammar.max_memo} memo entries")

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise self.refusal(index, "the index of a memo entry")
        self.push(self.memo[index])

    def push_name(self, module: object, name: object) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise self.refusal(module if isinstance(name, str) else name, "a name as text")
        found = _Global(module, name)
        if found not in self.grammar.names:
            raise self.refusal(found, "a name from the allow-list")
        self.push(found)


def _proto(machine: _Machine) -> None:
    version = machine.unsigned(1)
    # torch writes the blob as 2, LMCache the list as 4; 5 is Python 3.14's default and differs
    # in opcodes that tensors do not need.
    if not 2 <= version <= 5:
        raise machine.refusal(version, "pickle protocol 2 to 5")


def _frame(machine: _Machine) -> None:
    size = machine.unsigned(8)
    if size > machine.stream.nbytes - machine.position:
        raise machine.refusal(size, "a frame that ends within the stream")


def _long1(machine: _Machine) -> None:
    width = machine.unsigned(1)
    if width > _MAX_INT_BYTES:
        raise machine.refusal(width, f"an integer of at most {_MAX_INT_BYTES} bytes")
    machine.push(int.from_bytes(machine.take(width), "little", signed=True))


def _decoded(machine: _Machine, raw: memoryview) -> str:
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError as error:
        raise machine.refusal(raw, "UTF-8 text") from error


def _push_text(machine: _Machine, size: int) -> None:
    if size > _MAX_TEXT_BYTES:
        raise machine.refusal(size, f"text of at most {_MAX_TEXT_BYTES} bytes")
    machine.push(_decoded(machine, machine.take(size)))


def _take_line(machine: _Machine) -> str:
    ahead = machine.stream[machine.position : machine.position + _MAX_TEXT_BYTES + 1]
    size = bytes(ahead).find(b"\n")
    if size < 0:
        raise machine.refusal(ahead, f"a line of at most {_MAX_TEXT_BYTES} bytes")
    return _decoded(machine, machine.take(size + 1)[:size])


def _global(machine: _Machine) -> None:
    module = _take_line(machine)
    machine.push_name(module, _take_line(machine))


def _stack_name(machine: _Machine) -> None:
    name = machine.pop()
    machine.push_name(machine.pop(), name)


def _push_tuple(machine: _Machine, count: int) -> None:
    values = [machine.pop() for _ in range(count)]
    machine.push(tuple(reversed(values)))


def _top_list(machine: _Machine) -> list[object]:
    target = machine.top()
    if not isinstance(target, list):
        raise machine.refusal(target, "a list to append to")
    return target


def _append(machine: _Machine) -> None:
    value = machine.pop()
    _top_list(machine).append(value)


def _appends(machine: _Machine) -> None:
    values = machine.pop_to_mark()
    _top_list(machine).extend(values)


def _set_items(machine: _Machine) -> None:
    values = machine.pop_to_mark()
    target = machine.top()
    if not isinstance(target, dict) or len(values) % 2:
        raise machine.refusal(target, "a dict and an even number of keys and values")
    for key, value in zip(values[::2], values[1::2], strict=True):
        if not isinstance(key, str):
            raise machine.refusal(key, "text as dict key")
        target[key] = value


def _reduce(machine: _Machine) -> None:
    arguments = machine.pop()
    callee = machine.pop()
    call = machine.grammar.calls.get(callee) if isinstance(callee, _Global) else None
    if call is None or not isinstance(arguments, tuple):
        raise machine.refusal(callee, "an allow-listed function with a tuple of arguments")
    machine.push(call(arguments))


def _persistent_id(machine: _Machine) -> None:
    machine.push(machine.grammar.persistent(machine.pop()))


_STOP = ord(".")
# Opcodes that these streams do not need (BUILD, OBJ, INST, NEWOBJ, EXT*, LONG4, POP, DUP, ...)
# have no row, and a missing row is the refusal.
_HANDLERS: Mapping[int, Callable[[_Machine], None]] = {
    0x80: _proto,
    0x95: _frame,
    ord("("): _Machine.push_mark,
    ord("]"): lambda machine: machine.push([]),
    ord(")"): lambda machine: machine.push(()),
    ord("}"): lambda machine: machine.push({}),
    ord("N"): lambda machine: machine.push(None),
    0x88: lambda machine: machine.push(True),
    0x89: lambda machine: machine.push(False),
    ord("K"): lambda machine: machine.push(machine.unsigned(1)),
    ord("M"): lambda machine: machine.push(machine.unsigned(2)),
    ord("J"): lambda machine: machine.push(int.from_bytes(machine.take(4), "little", signed=True)),
    0x8A: _long1,
    ord("C"): lambda machine: machine.push(machine.take(machine.unsigned(1))),
    ord("B"): lambda machine: machine.push(machine.take(machine.unsigned(4))),
    0x8E: lambda machine: machine.push(machine.take(machine.unsigned(8))),
    0x8C: lambda machine: _push_text(machine, machine.unsigned(1)),
    ord("X"): lambda machine: _push_text(machine, machine.unsigned(4)),
    0x94: lambda machine: machine.remember(len(machine.memo)),
    ord("q"): lambda machine: machine.remember(machine.unsigned(1)),
    ord("r"): lambda machine: machine.remember(machine.unsigned(4)),
    ord("h"): lambda machine: machine.recall(machine.unsigned(1)),
    ord("j"): lambda machine: machine.recall(machine.unsigned(4)),
    ord("t"): lambda machine: machine.push(tuple(machine.pop_to_mark())),
    0x85: lambda machine: _push_tuple(machine, 1),
    0x86: lambda machine: _push_tuple(machine, 2),
    0x87: lambda machine: _push_tuple(machine, 3),
    ord("a"): _append,
    ord("e"): _appends,
    ord("u"): _set_items,
    ord("c"): _global,
    0x93: _stack_name,
    ord("R"): _reduce,
    ord("Q"): _persistent_id,
}


def _read_pickle(stream: memoryview, grammar: _Grammar) -> tuple[object, memoryview]:
    """The value of the pickle at the start of ``stream``, and what follows its STOP."""
    machine = _Machine(stream, grammar)
    for _ in range(grammar.max_opcodes):
        opcode = machine.unsigned(1)
        if opcode == _STOP:
            value = machine.pop()
            if machine.stack or machine.marks:
                raise machine.refusal("STOP", "one value on the stack at the end")
            return value, stream[machine.position :]
        handler = _HANDLERS.get(opcode)
        if handler is None:
            raise machine.refusal(f"opcode {opcode:#04x}", "an opcode that tensor lists need")
        handler(machine)
    raise machine.refusal("no STOP", f"at most {grammar.max_opcodes} opcodes")


# --- reading: the meaning ------------------------------------------------------------------------


class _Hooks(Enum):
    """The value of ``OrderedDict()``: a tensor has no backward hooks."""

    NONE = "no backward hooks"


@dataclass(frozen=True, slots=True)
class _StorageId:
    dtype: str
    key: str
    numel: int


@dataclass(frozen=True, slots=True)
class _Storage:
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
        return self.numel * _DTYPES[self.storage.dtype].item_bytes


def _as_count(value: object, place: str) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_COUNT:
        raise _refusal(place, value, "an integer from 0 to 2**63-1")
    return value


def _as_sizes(value: object, place: str) -> tuple[int, ...]:
    if not isinstance(value, tuple):
        raise _refusal(place, value, "a tuple of integers")
    return tuple(_as_count(item, place) for item in value)


def _no_persistent_id(value: object) -> object:
    raise _refusal("persistent id", value, "none outside a storage blob")


def _storage_id(value: object) -> _StorageId:
    place = "persistent id of the storage"
    if not isinstance(value, tuple) or len(value) != 6:
        raise _refusal(place, value, "a tuple of six")
    kind, storage, key, device, numel, views = value
    dtype = _DTYPE_OF_STORAGE.get(storage) if isinstance(storage, _Global) else None
    if dtype is None:
        raise _refusal(place, storage, "a storage class")
    if not isinstance(key, str):
        raise _refusal(place, key, "the storage's key as text")
    for got, expected in ((kind, "storage"), (device, "cpu"), (views, None)):
        if type(got) is not type(expected) or got != expected:
            raise _refusal(place, got, repr(expected))
    return _StorageId(dtype, key, _as_count(numel, place))


_BLOB_GRAMMAR = _Grammar(
    names=frozenset(_DTYPE_OF_STORAGE),
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
            raise _refusal(place, got, repr(expected))


def _load_storage(arguments: tuple[object, ...]) -> _Storage:
    if len(arguments) != 1 or not isinstance(arguments[0], memoryview):
        raise _refusal("_load_from_bytes", arguments, "one argument of bytes")
    rest = arguments[0]
    magic, rest = _read_pickle(rest, _BLOB_GRAMMAR)
    version, rest = _read_pickle(rest, _BLOB_GRAMMAR)
    sender, rest = _read_pickle(rest, _BLOB_GRAMMAR)
    storage, rest = _read_pickle(rest, _BLOB_GRAMMAR)
    keys, rest = _read_pickle(rest, _BLOB_GRAMMAR)
    _check_blob_head(magic, version, sender)
    if not isinstance(storage, _StorageId):
        raise _refusal("object of a blob", storage, "one storage")
    if not isinstance(keys, list) or len(keys) != 1 or keys[0] != storage.key:
        raise _refusal("storage keys of a blob", keys, f"a list of {storage.key!r} alone")
    expected = 8 + storage.numel * _DTYPES[storage.dtype].item_bytes
    if rest.nbytes != expected:
        raise _refusal("contents of a blob", rest, f"{expected} bytes for {storage}")
    (numel,) = struct.unpack_from("<q", rest)
    if numel != storage.numel:
        raise _refusal("element count of a blob", numel, str(storage.numel))
    return _Storage(storage.dtype, numel, rest[8:])


def _rebuild_view(arguments: tuple[object, ...]) -> _View:
    place = "_rebuild_tensor_v2"
    if len(arguments) != 6:
        raise _refusal(place, arguments, "six arguments")
    storage, raw_offset, raw_shape, raw_stride, requires_grad, hooks = arguments
    if not isinstance(storage, _Storage):
        raise _refusal(place, storage, "a storage")
    if not isinstance(requires_grad, bool) or hooks is not _Hooks.NONE:
        raise _refusal(place, hooks, "a boolean requires_grad and an empty OrderedDict")
    offset = _as_count(raw_offset, "storage offset")
    shape = _as_sizes(raw_shape, "shape")
    stride = _as_sizes(raw_stride, "stride")
    if len(shape) != len(stride) or not _is_shape(shape):
        raise _refusal(
            place,
            str(shape),
            f"at most {_MAX_RANK} sizes, below 2**60 in all, and one for each of {stride}",
        )
    end = offset + 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if 0 not in shape and end > storage.numel:
        raise _refusal(place, end, f"a view that ends within {storage.numel} elements")
    return _View(storage=storage, offset=offset, shape=shape, stride=stride)


def _no_hooks(arguments: tuple[object, ...]) -> _Hooks:
    if arguments:
        raise _refusal("OrderedDict", arguments, "no arguments")
    return _Hooks.NONE


_OUTER_CALLS: Mapping[_Global, Callable[[tuple[object, ...]], object]] = {
    _REBUILD_TENSOR: _rebuild_view,
    _LOAD_STORAGE: _load_storage,
    _ORDERED_DICT: _no_hooks,
}


def _outer_grammar(max_tensors: int) -> _Grammar:
    return _Grammar(
        names=frozenset(_OUTER_CALLS),
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
    view_format = _DTYPES[view.storage.dtype].view_format
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
    start = view.offset * _DTYPES[view.storage.dtype].item_bytes
    return view.storage.data[start : start + view.nbytes]


def decode_tensor_list(
    stream: bytes | memoryview, *, max_tensors: int = 4096
) -> list[InlineTensor]:
    """The tensors of a peer's stream, or RemoteProtocolError.

    The data of a contiguous tensor is a view into ``stream``; a strided one is copied. The
    default of ``max_tensors`` allows a million-token request in chunks of 256.
    """
    whole = _byte_view(stream, "inline tensor list")
    views, rest = _read_pickle(whole, _outer_grammar(max_tensors))
    if rest.nbytes:
        raise _refusal("after the list", rest, "the end of the stream")
    if not isinstance(views, list) or len(views) > max_tensors:
        raise _refusal("the value", views, f"a list of at most {max_tensors} tensors")
    tensors: list[InlineTensor] = []
    budget = whole.nbytes + _GATHER_SLACK_BYTES
    for view in views:
        if not isinstance(view, _View):
            raise _refusal("an item of the list", view, "a tensor")
        contiguous = _is_contiguous(view)
        budget -= 0 if contiguous else view.nbytes
        if budget < 0:
            raise _refusal("strided tensors", view.nbytes, "no more bytes than the stream has")
        data = _sliced(view) if contiguous else _gathered(view)
        tensors.append(InlineTensor(view.storage.dtype, view.shape, data))
    return tensors

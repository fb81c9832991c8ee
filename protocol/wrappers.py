"""KV tensor descriptors of the pickle generation (0.4.7 to 0.5.5), without pickle.

Servers of those releases unpickle what they get.  Here a descriptor is written opcode by opcode,
as CPython's pickler writes it (protocol 4), and read by a stack machine that makes plain values:
nothing is imported, and no peer's bytes can name code to run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocol.dtypes import ITEM_BYTES
from protocol.errors import RemoteProtocolError
from protocol.pickles import Global, Grammar, Instance, read_pickle, short_int

CPU_WRAPPER = Global("lmcache.v1.platform.cpu.shm", "CpuShmTensorWrapper")
"""The class that a CPU tensor in shared memory has on the server (0.4.7 to 0.5.5)."""

FIELDS = (
    "shm_name",
    "nbytes",
    "handle",
    "dtype",
    "shape",
    "stride",
    "storage_offset",
    "device_uuid",
)

MAX_WRAPPER_BYTES = 4096
_MEMO = b"\x94"


def write_wrapper(values: Mapping[str, Any]) -> bytes:
    """Return the pickle of a wrapper whose instance dict has the `FIELDS`, in their order.

    `dtype` is torch's name for it, shape and stride are tuples of counts, `handle` is None.
    """
    items = b"".join(_text(name) + _value(name, values[name]) for name in FIELDS)
    body = b"".join((_name(CPU_WRAPPER), b")\x81", _MEMO, b"}", _MEMO, b"(", items, b"ub."))
    return b"\x80\x04\x95" + len(body).to_bytes(8, "little") + body


def _value(name: str, value: Any) -> bytes:
    if value is None:
        return b"N"
    if name == "dtype":
        return _name(Global("torch", value))
    if isinstance(value, str):
        return _text(value)
    return short_int(value) if isinstance(value, int) else _counts(value)


def _text(value: str) -> bytes:
    """SHORT_BINUNICODE, memoized; no field is longer than its length byte allows."""
    raw = value.encode()
    return b"\x8c" + len(raw).to_bytes(1, "little") + raw + _MEMO


def _name(name: Global) -> bytes:
    return _text(name.module) + _text(name.name) + b"\x93" + _MEMO


def _counts(values: Sequence[int]) -> bytes:
    """A tuple: the pickler has opcodes of their own for up to three items."""
    items = b"".join(map(short_int, values))
    if not values:
        return b")"
    if len(values) <= 3:
        return items + (b"\x85", b"\x86", b"\x87")[len(values) - 1] + _MEMO
    return b"(" + items + b"t" + _MEMO


def _no_persistent_id(value: object) -> object:
    raise RemoteProtocolError("handle: a wrapper has no persistent id")


_GRAMMAR = Grammar(
    names=frozenset(Global("torch", name) for name in ITEM_BYTES),
    calls={},
    persistent=_no_persistent_id,
    max_opcodes=256,
    max_stack=128,
    max_memo=64,
    classes=frozenset({CPU_WRAPPER}),
    subject="handle",
)


def read_wrapper(stream: bytes) -> Mapping[str, object]:
    """Return a CPU wrapper's instance dict, with `dtype` as torch's name for it.

    Raises RemoteProtocolError for a pickle of anything else.
    """
    if len(stream) > MAX_WRAPPER_BYTES:
        raise RemoteProtocolError(
            f"handle: a wrapper of {len(stream)} bytes, expected at most {MAX_WRAPPER_BYTES}"
        )
    value, rest = read_pickle(memoryview(stream), _GRAMMAR)
    if not isinstance(value, Instance) or value.state is None or rest.nbytes:
        raise RemoteProtocolError(f"handle: expected one {CPU_WRAPPER.name} with its state")
    if set(value.state) != set(FIELDS) or value.state["handle"] is not None:
        raise RemoteProtocolError(f"handle: expected the fields {', '.join(FIELDS)}")
    dtype = value.state["dtype"]
    return {**value.state, "dtype": dtype.name if isinstance(dtype, Global) else dtype}

"""The types of payload frames and results, each with its way to the wire and back.

A `Kind` is a pair of pure functions between a Python value and what msgpack packs.  Rows of
`protocol.dialects` are made of them, so that an operation's encoding is data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from protocol.bounds import FEW, MAX_SLOTS, MAX_TOKENS, SLOT_ELEMENTS
from protocol.handles import (
    KvHandle,
    handle_from_wire,
    handle_to_wire,
    pickled_handle_from_wire,
    pickled_handle_to_wire,
)
from protocol.inline.tensor import InlineTensor
from protocol.keys import key_from_wire, key_to_wire
from protocol.messages import PoolInfo, RetrievePlan, Slot, StorePlan, TransferResult
from protocol.values import is_int, is_int_list, refuse

REQUIRED: Any = object()
"""The default of a field that has none."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One wire type: `to_wire` may raise LocalProtocolError, `from_wire` RemoteProtocolError.

    A document of more than `elements` is not decoded.
    """

    name: str
    to_wire: Callable[[Any], Any]
    from_wire: Callable[[Any], Any]
    elements: int = FEW


@dataclass(frozen=True, slots=True)
class Field:
    """One payload frame of a request; callers may leave out trailing ones that have a default."""

    name: str
    kind: Kind
    default: Any = REQUIRED


@dataclass(frozen=True, slots=True)
class InlineForm:
    """How engine_driven chunks travel inside messages: tensors to bytes and back.

    `encode` may raise LocalProtocolError, `decode` RemoteProtocolError.
    """

    name: str
    encode: Callable[[Sequence[InlineTensor]], bytes]
    decode: Callable[[bytes | memoryview], Sequence[InlineTensor]]


def _same(value: Any) -> Any:
    return value


_DESCRIBED = 1 << 16
"""Elements of what describes KV layers: each has a handful, and a model a few hundred layers."""

_TOKENS = MAX_TOKENS + FEW


def _plain(name: str, expected: str, test: Callable[[Any], bool], elements: int = FEW) -> Kind:
    def from_wire(value: Any) -> Any:
        if not test(value):
            raise refuse(expected, value)
        return value

    return Kind(name, _same, from_wire, elements)


def _is_block_ids(value: Any) -> bool:
    return isinstance(value, list) and all(is_int_list(ids) for ids in value)


ANY = Kind("any", _same, _same)
INT = _plain("int", "an integer", is_int)
OPT_INT = _plain("opt_int", "an integer or nil", lambda v: v is None or is_int(v))
STR = _plain("str", "a string", lambda v: isinstance(v, str))
# Large ones are views of the frame that they came in.
BYTES = _plain("bytes", "bytes", lambda v: isinstance(v, bytes | memoryview))
# Top-level bools and integers are interchangeable since 0.4.7.
BOOL = _plain("bool", "a bool", lambda v: isinstance(v, int))
STRS = _plain(
    "strs",
    "an array of strings",
    lambda v: isinstance(v, list) and all(isinstance(i, str) for i in v),
)
FLOAT = _plain("float", "a number", lambda v: is_int(v) or isinstance(v, float))
MAP = _plain("map", "a map", lambda v: isinstance(v, dict), _DESCRIBED)
MAPS = _plain(
    "maps",
    "an array of maps",
    lambda v: isinstance(v, list) and all(type(i) is dict for i in v),
    _DESCRIBED,
)
BLOCK_IDS = _plain(
    "block_ids", "an array of arrays of block ids, one a group", _is_block_ids, _TOKENS
)


INT_LISTS = Kind("int_lists", lambda v: [list(item) for item in v], BLOCK_IDS.from_wire, _TOKENS)


def _flat_from_wire(value: Any) -> list[list[int]]:
    if not is_int_list(value):
        raise refuse("an array of block ids", value)
    return [value]


def _flat_to_wire(tables: Sequence[Sequence[int]]) -> list[int]:
    if len(tables) != 1:
        raise ValueError(f"block ids of {len(tables)} KV layer groups, one can be sent")
    return list(tables[0])


FLAT_BLOCK_IDS = Kind("flat_block_ids", _flat_to_wire, _flat_from_wire, _TOKENS)
"""One flat array, of the only group (0.4.6 and before)."""


def _handles(
    name: str, to_wire: Callable[[Any], Any], from_wire: Callable[[Any], KvHandle]
) -> Kind:
    def read(value: Any) -> list[KvHandle]:
        if not isinstance(value, list):
            raise refuse("an array of tensor descriptors", value)
        return [from_wire(item) for item in value]

    return Kind(name, lambda handles: [to_wire(handle) for handle in handles], read, _DESCRIBED)


HANDLES = _handles("handles", handle_to_wire, handle_from_wire)
PICKLED_HANDLES = _handles("pickled_handles", pickled_handle_to_wire, pickled_handle_from_wire)
"""Pickles of the server's own wrapper class (0.5.5 and before)."""


def key_kind(fields: tuple[str, ...]) -> Kind:
    """Return the key's wire type with the key fields of one release."""
    return Kind(
        "key", lambda key: key_to_wire(key, fields), lambda v: key_from_wire(v, fields), _TOKENS
    )


def _transfer_to_wire(result: TransferResult) -> list[Any]:
    return [result.event, result.ok]


def _transfer_from_wire(value: Any) -> TransferResult:
    shape_ok = isinstance(value, list) and len(value) == 2
    if not shape_ok or not isinstance(value[0], bytes) or not isinstance(value[1], bool):
        raise refuse("[event bytes, bool]", value)
    return TransferResult(event=value[0], ok=value[1])


TRANSFER = Kind("transfer", _transfer_to_wire, _transfer_from_wire)


def _pool_to_wire(info: PoolInfo) -> dict[str, Any]:
    return {"shm_name": info.shm_name, "pool_size": info.pool_bytes}


def _pool_from_wire(value: Any) -> PoolInfo:
    if not isinstance(value, dict):
        raise refuse("a map {shm_name, pool_size}", value)
    name, size = value.get("shm_name"), value.get("pool_size")
    if not isinstance(name, str) or not is_int(size) or size < 0:
        raise refuse("a map {shm_name: string, pool_size: integer}", value)
    return PoolInfo(shm_name=name, pool_bytes=size)


POOL_INFO = Kind("pool_info", _pool_to_wire, _pool_from_wire)


def _pool_and_null_to_wire(info: PoolInfo) -> dict[str, Any]:
    said = {} if info.null_block_id is None else {"null_block_id": info.null_block_id}
    return {**_pool_to_wire(info), **said}


def _pool_and_null_from_wire(value: Any) -> PoolInfo:
    info = _pool_from_wire(value)
    null_block_id = value.get("null_block_id")
    if null_block_id is not None and not is_int(null_block_id):
        raise refuse("an integer as null_block_id", null_block_id)
    return replace(info, null_block_id=null_block_id)


POOL_AND_NULL_INFO = Kind("pool_and_null_info", _pool_and_null_to_wire, _pool_and_null_from_wire)
"""As 0.5.7 answers."""


def _slot_to_wire(slot: Slot) -> dict[str, Any]:
    return {
        "offset": slot.offset,
        "length": slot.length,
        "shape": list(slot.shape),
        "dtype": slot.dtype,
    }


def _slot_from_wire(value: Any) -> Slot:
    if not isinstance(value, dict):
        raise refuse("a slot map", value)
    offset, length = value.get("offset"), value.get("length")
    shape, dtype = value.get("shape"), value.get("dtype")
    if not is_int(offset) or not is_int(length):
        raise refuse("a slot with integers offset and length", value)
    if not is_int_list(shape) or not isinstance(dtype, str):
        raise refuse("a slot with an array shape and a string dtype", value)
    if min(offset, length, *shape) < 0:
        raise refuse("a slot without negative numbers", value)
    return Slot(offset=offset, length=length, shape=tuple(shape), dtype=dtype)


def _slots_from_wire(context: Mapping[str, Any]) -> tuple[Slot, ...]:
    slots = context.get("slots")
    if not isinstance(slots, list) or len(slots) > MAX_SLOTS:
        raise refuse("an array of slots", slots)
    return tuple(_slot_from_wire(item) for item in slots)


def _store_plan_to_wire(plan: StorePlan) -> dict[str, Any]:
    if plan.inline:
        return {"context": {}}
    slots = [_slot_to_wire(slot) for slot in plan.slots]
    return {"context": {"slots": slots, "chunk_indices": list(plan.chunk_indices)}}


def _context_of(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not isinstance(value.get("context"), dict):
        raise refuse("a map with a map `context`", value)
    context: dict[str, Any] = value["context"]
    return context


def _store_plan_from_wire(value: Any) -> StorePlan:
    context = _context_of(value)
    if not context:
        return StorePlan(inline=True, slots=(), chunk_indices=())
    slots, indices = _slots_from_wire(context), context.get("chunk_indices")
    if not is_int_list(indices) or len(indices) != len(slots):
        raise refuse(f"{len(slots)} chunk indices, one a slot", indices)
    if any(index < 0 for index in indices):
        raise refuse("chunk indices of 0 or more", indices)
    return StorePlan(inline=False, slots=slots, chunk_indices=tuple(indices))


_SLOTS = MAX_SLOTS * SLOT_ELEMENTS + FEW

STORE_PLAN = Kind("store_plan", _store_plan_to_wire, _store_plan_from_wire, _SLOTS)


def _retrieve_plan_to_wire(plan: RetrievePlan) -> dict[str, Any]:
    context = {"slots": [_slot_to_wire(slot) for slot in plan.slots]} if plan.slots else {}
    return {"success": plan.success, "data": plan.data, "context": context}


def _retrieve_plan_from_wire(value: Any) -> RetrievePlan:
    context = _context_of(value)
    success, data = value.get("success"), value.get("data")
    if not isinstance(success, bool) or not isinstance(data, bytes):
        raise refuse("a map {success: bool, data: bytes, context: map}", value)
    slots = _slots_from_wire(context) if context else ()
    return RetrievePlan(success=success, data=data, slots=slots)


RETRIEVE_PLAN = Kind("retrieve_plan", _retrieve_plan_to_wire, _retrieve_plan_from_wire, _SLOTS)

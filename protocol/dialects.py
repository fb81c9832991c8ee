"""One row for each generation of the MP wire: operation ids, payload order, key fields, quirks.

A release of the server is a row here and a recorded session in the tests, nothing else.  Data
only: what a number means is in `protocol.ops`, how a value is packed in `protocol.fields`.  What
a generation cannot do is a field of its row, so that nobody else asks for a version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from protocol.envelope import decode_envelope, encode_envelope
from protocol.errors import LocalProtocolError
from protocol.fields import (
    BLOCK_IDS,
    BOOL,
    BYTES,
    FLAT_BLOCK_IDS,
    FLOAT,
    HANDLES,
    INT,
    INT_LISTS,
    MAP,
    MAPS,
    OPT_INT,
    PICKLED_HANDLES,
    POOL_AND_NULL_INFO,
    POOL_INFO,
    RETRIEVE_PLAN,
    STORE_PLAN,
    STR,
    STRS,
    TRANSFER,
    Field,
    InlineForm,
    Kind,
    key_kind,
)
from protocol.httpapi import HTTP_041, HTTP_045, HTTP_051, HttpRoutes
from protocol.ops import Op
from protocol.tensors import decode_tensor_list, encode_tensor_list
from protocol.values import clip


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRow:
    """One operation in one generation.

    `result` None: the reply has no result frame.  `pending`: it may also have none while the
    server is still at work.
    """

    id: int
    payload: tuple[Field, ...]
    result: Kind | None
    pending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One wire generation.

    releases: the server releases that speak it, as `/version` names them.
    verified: a real server of each release has been spoken to; else the row is from its source.
    op_names: the server takes an operation's lower-case name in place of its number.
    null_block_id: a chunk whose block ids all equal it is never stored (default of the server),
        or None where there is no such rule.
    inline: how engine_driven chunks travel without a shared pool.
    http: the paths of its HTTP API.
    cpu_reads_hnd: a CPU server ignores the layout hint and reads tensors of rank 5 as HND.
    mixed_groups: layers of rank 3 (MLA) and rank 5 may be registered together.
    maps_cpu: a CPU server can map a client's KV tensors (lmcache_driven).
    maps_cuda: CUDA tensors can be described to a server (lmcache_driven): in the msgpack form of
        0.5.6 alone; older servers map them too, but from pickles that we do not write.
    engine_driven: the engine-driven operations exist.
    unregister_answered: a CPU server answers UNREGISTER_KV_CACHE.
    lookup_reads_end: a LOOKUP ends at its key's `end`; 0.5.5 and before look up all tokens that the
        key brings (measured).
    lookup_keeps_part: a LOOKUP that ends between the ranks of one chunk keeps the locks of those
        that it found.
    refuses_unregistered: STORE and RETRIEVE of an unknown instance are answered with False; else
        not at all.
    told_by: the operation that these releases answer at once, and whose number and frames do no
        harm to any other: see `protocol.probe.confirmation`.
    """

    name: str
    releases: tuple[str, ...]
    ops: Mapping[Op, OpRow]
    key_fields: tuple[str, ...]
    inline: InlineForm
    http: HttpRoutes
    null_block_id: int | None
    verified: bool = True
    op_names: bool = False
    cpu_reads_hnd: bool = False
    mixed_groups: bool = True
    maps_cpu: bool = True
    maps_cuda: bool = True
    engine_driven: bool = True
    unregister_answered: bool = True
    lookup_reads_end: bool = True
    lookup_keeps_part: bool = False
    refuses_unregistered: bool = True
    told_by: Op = Op.WAIT_PREFETCH_STATUS

    @property
    def keys_name_readers(self) -> bool:
        """Tell whether a LOOKUP's key says how many workers will read each object (0.5.5+)."""
        return "num_kv_readers" in self.key_fields

    @property
    def pings_name_instances(self) -> bool:
        """Tell whether a PING says who is alive, and keeps that registration (0.5.0+)."""
        row = self.ops.get(Op.PING)
        return row is not None and any(field.name == "instance_id" for field in row.payload)

    def named(self, op: Op, args: Sequence[Any]) -> dict[str, Any]:
        """Return a request's payload by field name."""
        return dict(zip((f.name for f in self.ops[op].payload), args, strict=True))

    def arguments(self, op: Op, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return those of the named values that this generation sends, in its order.

        Raises LocalProtocolError if it wants one that is not there.
        """
        row = self.ops.get(op)
        missing = [f.name for f in row.payload if f.name not in values] if row else [op.value]
        if row is None or missing:
            raise LocalProtocolError(f"{op.value} in {self.name} wants {', '.join(missing)}")
        return tuple(values[field.name] for field in row.payload)


_KEY_FIELDS_041 = (
    *("model_name", "world_size", "worker_id"),
    *("token_ids", "start", "end", "request_id"),
)
_KEY_FIELDS_044 = (*_KEY_FIELDS_041, "cache_salt")
_KEY_FIELDS_055 = (*_KEY_FIELDS_044, "request_configs", "num_kv_readers")
_KEY_FIELDS_057 = tuple("token_bytes" if f == "token_ids" else f for f in _KEY_FIELDS_055)

_INSTANCE = Field("instance_id", INT)
_REQUEST = Field("request_id", STR)
_EVENT = Field("event", BYTES)
_TP_SIZE = Field("tp_size", INT)

_TORCH_STREAM = InlineForm("torch stream", encode_tensor_list, decode_tensor_list)
_ENVELOPE = InlineForm("envelope", encode_envelope, decode_envelope)


@dataclass(frozen=True, slots=True)
class _Shape:
    payload: tuple[Field, ...]
    result: Kind | None = None
    pending: bool = False


def _shapes(
    key_fields: tuple[str, ...], *, handles: Kind = HANDLES, block_ids: Kind = BLOCK_IDS
) -> dict[Op, _Shape]:
    """Return the payloads and results of 0.5.6, with another key, handles or block ids."""
    key, blocks = Field("key", key_kind(key_fields)), Field("block_ids", block_ids)
    register = (
        _INSTANCE,
        Field("kv_cache", handles),
        Field("model_name", STR),
        Field("world_size", INT),
        Field("engine_type", STR),
        Field("layout_hints", MAP),
        Field("engine_group_infos", MAPS),
    )
    skip = Field("skip_first_n_tokens", INT)
    return {
        Op.REGISTER_KV_CACHE: _Shape(register),
        Op.UNREGISTER_KV_CACHE: _Shape((_INSTANCE,)),
        Op.STORE: _Shape((key, _INSTANCE, blocks, _EVENT), TRANSFER),
        Op.RETRIEVE: _Shape((key, _INSTANCE, blocks, _EVENT, skip), TRANSFER),
        Op.LOOKUP: _Shape((key, _TP_SIZE)),
        Op.QUERY_PREFETCH_STATUS: _Shape((_REQUEST,), INT, pending=True),
        Op.WAIT_PREFETCH_STATUS: _Shape((_REQUEST, Field("timeout_s", FLOAT)), INT, pending=True),
        Op.QUERY_PREFETCH_LOOKUP_HITS: _Shape((_REQUEST,), INT, pending=True),
        Op.FREE_LOOKUP_LOCKS: _Shape((key, _TP_SIZE)),
        Op.END_SESSION: _Shape((_REQUEST,)),
        Op.REGISTER_ENGINE_DRIVEN: _Shape((Field("registration", MAP),), POOL_INFO),
        Op.UNREGISTER_ENGINE_DRIVEN: _Shape((_INSTANCE,)),
        Op.PREPARE_STORE: _Shape((key, _INSTANCE), STORE_PLAN),
        Op.COMMIT_STORE: _Shape((key, _INSTANCE, Field("data", BYTES)), BOOL),
        Op.PREPARE_RETRIEVE: _Shape((key, _INSTANCE), RETRIEVE_PLAN),
        Op.COMMIT_RETRIEVE: _Shape((key, _INSTANCE), BOOL),
        Op.CLEAR: _Shape((Field("force", BOOL),)),
        Op.GET_CHUNK_SIZE: _Shape((), INT),
        Op.PING: _Shape((Field("instance_id", OPT_INT),), BOOL),
        Op.REPORT_BLOCK_ALLOCATION: _Shape(
            (_INSTANCE, Field("model_name", STR), Field("records", MAPS))
        ),
        Op.GET_EXPERIMENTAL: _Shape((), STRS),
        Op.NOOP: _Shape((), STR),
    }


def _without(shape: _Shape, *names: str) -> _Shape:
    return replace(shape, payload=tuple(f for f in shape.payload if f.name not in names))


def _rows(shapes: Mapping[Op, _Shape], ids: Mapping[Op, int]) -> dict[Op, OpRow]:
    """Join shapes and ids; an operation without an id does not exist."""
    return {
        op: OpRow(
            id=number,
            payload=shapes[op].payload,
            result=shapes[op].result,
            pending=shapes[op].pending,
        )
        for op, number in ids.items()
    }


_ENGINE_OPS = (
    Op.REGISTER_ENGINE_DRIVEN,
    Op.UNREGISTER_ENGINE_DRIVEN,
    Op.PREPARE_STORE,
    Op.COMMIT_STORE,
    Op.PREPARE_RETRIEVE,
    Op.COMMIT_RETRIEVE,
)


def _numbered(first: int, ops: Sequence[Op | None]) -> dict[Op, int]:
    """Number operations from `first` on; None is an operation that no bench needs."""
    return {op: number for number, op in enumerate(ops, first) if op is not None}


_BLEND = None  # three ids that moved STORE and RETRIEVE up in 0.5.3

_MAPPED_OPS = (Op.REGISTER_KV_CACHE, Op.UNREGISTER_KV_CACHE)
_DATA_OPS = (Op.STORE, Op.RETRIEVE, Op.LOOKUP, Op.QUERY_PREFETCH_STATUS)
_TAIL_OPS = (Op.CLEAR, Op.GET_CHUNK_SIZE, Op.PING, Op.REPORT_BLOCK_ALLOCATION, Op.NOOP)
_CLOSE_OPS = (Op.FREE_LOOKUP_LOCKS, Op.END_SESSION)

_IDS_041 = _numbered(
    1, (*_MAPPED_OPS, *_DATA_OPS, *_CLOSE_OPS, Op.CLEAR, Op.GET_CHUNK_SIZE, Op.NOOP)
)
_IDS_042 = _numbered(
    1, (*_MAPPED_OPS, *_DATA_OPS, *_CLOSE_OPS, Op.CLEAR, Op.GET_CHUNK_SIZE, Op.PING, Op.NOOP)
)
_IDS_043 = _numbered(
    1, (*_MAPPED_OPS, *_DATA_OPS, Op.QUERY_PREFETCH_LOOKUP_HITS, *_CLOSE_OPS, *_TAIL_OPS)
)
# The engine-driven registration has no end of its own: UNREGISTER_KV_CACHE ends both.
_IDS_046 = _numbered(
    1,
    (
        *(*_MAPPED_OPS, *_DATA_OPS, Op.QUERY_PREFETCH_LOOKUP_HITS, *_CLOSE_OPS),
        *(Op.REGISTER_ENGINE_DRIVEN, *_ENGINE_OPS[2:], *_TAIL_OPS),
    ),
)
_IDS_047 = _numbered(
    1,
    (
        *_MAPPED_OPS,
        *_DATA_OPS,
        Op.QUERY_PREFETCH_LOOKUP_HITS,
        *_CLOSE_OPS,
        *_ENGINE_OPS,
        *_TAIL_OPS,
    ),
)
_WAITED = (
    *_DATA_OPS,
    Op.WAIT_PREFETCH_STATUS,
    Op.QUERY_PREFETCH_LOOKUP_HITS,
    *_CLOSE_OPS,
    *_ENGINE_OPS,
    *_TAIL_OPS,
)
_IDS_050 = _numbered(1, (*_MAPPED_OPS, *_WAITED))
_BLENDED = _numbered(1, (*_MAPPED_OPS, _BLEND, _BLEND, _BLEND, *_WAITED))
_IDS_053 = {**_BLENDED, Op.GET_EXPERIMENTAL: 40}
_IDS_055 = {**_BLENDED, Op.GET_EXPERIMENTAL: 32}
_IDS_056: dict[Op, int] = {
    op: number for op, number in _IDS_055.items() if op is not Op.QUERY_PREFETCH_LOOKUP_HITS
}

_SHAPES_056 = _shapes(_KEY_FIELDS_055)
_CLEAR_ALL = _without(_SHAPES_056[Op.CLEAR], "force")
_SHAPES_055 = {**_shapes(_KEY_FIELDS_055, handles=PICKLED_HANDLES), Op.CLEAR: _CLEAR_ALL}
_SHAPES_050 = {**_shapes(_KEY_FIELDS_044, handles=PICKLED_HANDLES), Op.CLEAR: _CLEAR_ALL}
_SHAPES_047 = {**_SHAPES_050, Op.PING: _without(_SHAPES_050[Op.PING], "instance_id")}
_FLAT_044 = _shapes(_KEY_FIELDS_044, handles=PICKLED_HANDLES, block_ids=FLAT_BLOCK_IDS)
_SHAPES_046 = {
    **_FLAT_044,
    Op.CLEAR: _CLEAR_ALL,
    Op.PING: _SHAPES_047[Op.PING],
    Op.REGISTER_KV_CACHE: _without(_FLAT_044[Op.REGISTER_KV_CACHE], "engine_group_infos"),
    Op.REGISTER_ENGINE_DRIVEN: replace(_FLAT_044[Op.REGISTER_ENGINE_DRIVEN], result=None),
}
_SHAPES_044 = {
    **_SHAPES_046,
    Op.REGISTER_KV_CACHE: _without(
        _FLAT_044[Op.REGISTER_KV_CACHE], "engine_group_infos", "engine_type"
    ),
}
_FLAT_041 = _shapes(_KEY_FIELDS_041, handles=PICKLED_HANDLES, block_ids=FLAT_BLOCK_IDS)
_JOB = _Shape((Field("job_id", INT),), INT, pending=True)
_SHAPES_043 = {
    **_FLAT_041,
    Op.CLEAR: _CLEAR_ALL,
    Op.PING: _SHAPES_047[Op.PING],
    Op.REGISTER_KV_CACHE: _without(
        _FLAT_041[Op.REGISTER_KV_CACHE], "engine_group_infos", "engine_type"
    ),
    Op.REPORT_BLOCK_ALLOCATION: _without(
        _FLAT_041[Op.REPORT_BLOCK_ALLOCATION], "instance_id", "model_name"
    ),
    Op.LOOKUP: replace(_FLAT_041[Op.LOOKUP], result=INT),
    Op.QUERY_PREFETCH_STATUS: _JOB,
    Op.QUERY_PREFETCH_LOOKUP_HITS: _JOB,
}
_SHAPES_041 = {
    **_SHAPES_043,
    Op.REGISTER_KV_CACHE: _without(_SHAPES_043[Op.REGISTER_KV_CACHE], "layout_hints"),
}
_BASE_057 = _shapes(_KEY_FIELDS_057)
_SHAPES_057 = {
    **_BASE_057,
    Op.REGISTER_ENGINE_DRIVEN: replace(
        _BASE_057[Op.REGISTER_ENGINE_DRIVEN], result=POOL_AND_NULL_INFO
    ),
    Op.FREE_LOOKUP_LOCKS: _Shape(
        (*_BASE_057[Op.FREE_LOOKUP_LOCKS].payload, Field("extra_ranges", INT_LISTS, ()))
    ),
    Op.PREPARE_STORE: _Shape(
        (*_BASE_057[Op.PREPARE_STORE].payload, Field("skipped_chunks", INT_LISTS, ())), STORE_PLAN
    ),
}

V056 = Dialect(
    name="0.5.6",
    releases=("0.5.6",),
    ops=_rows(_SHAPES_056, _IDS_056),
    key_fields=_KEY_FIELDS_055,
    inline=_TORCH_STREAM,
    http=HTTP_051,
    null_block_id=0,
    op_names=True,
)
V057 = replace(
    V056,
    name="0.5.7",
    releases=("0.5.7rc2",),
    ops=_rows(_SHAPES_057, _IDS_056),
    key_fields=_KEY_FIELDS_057,
    inline=_ENVELOPE,
)
V055 = replace(
    V056,
    name="0.5.5",
    releases=("0.5.5",),
    ops=_rows(_SHAPES_055, _IDS_055),
    op_names=False,
    maps_cuda=False,
    lookup_reads_end=False,
)
V054 = replace(
    V055,
    name="0.5.4",
    releases=("0.5.4",),
    ops=_rows(_SHAPES_050, _IDS_053),
    key_fields=_KEY_FIELDS_044,
    cpu_reads_hnd=True,
    refuses_unregistered=False,
)
V053 = replace(V054, name="0.5.3", releases=("0.5.3",), null_block_id=None)
V051 = replace(
    V053,
    name="0.5.1",
    releases=("0.5.1", "0.5.2"),
    ops=_rows(_SHAPES_050, _IDS_050),
    lookup_keeps_part=True,
)
V050 = replace(V051, name="0.5.0", releases=("0.5.0",), http=HTTP_045, mixed_groups=False)
V047 = replace(
    V050,
    name="0.4.7",
    releases=("0.4.7",),
    ops=_rows(_SHAPES_047, _IDS_047),
    unregister_answered=False,
    told_by=Op.PING,
)
V046 = replace(
    V047,
    name="0.4.6",
    releases=("0.4.6",),
    ops=_rows(_SHAPES_046, _IDS_046),
    maps_cpu=False,
    unregister_answered=True,
    told_by=Op.NOOP,
)
V045 = replace(
    V046,
    name="0.4.5",
    releases=("0.4.5",),
    ops=_rows(_SHAPES_046, _IDS_043),
    verified=False,
    engine_driven=False,
    told_by=Op.GET_CHUNK_SIZE,
)
V044 = replace(
    V045,
    name="0.4.4",
    releases=("0.4.4",),
    ops=_rows(_SHAPES_044, _IDS_043),
    http=HTTP_041,
)
V043 = replace(
    V044,
    name="0.4.3",
    releases=("0.4.3",),
    ops=_rows(_SHAPES_043, _IDS_043),
    key_fields=_KEY_FIELDS_041,
)
V042 = replace(
    V043,
    name="0.4.2",
    releases=("0.4.2",),
    ops=_rows(_SHAPES_041, _IDS_042),
    told_by=Op.PING,
)
V041 = replace(
    V042,
    name="0.4.1",
    releases=("0.4.1",),
    ops=_rows(_SHAPES_041, _IDS_041),
    told_by=Op.NOOP,
)

DIALECTS: tuple[Dialect, ...] = (
    V057,
    V056,
    V055,
    V054,
    V053,
    V051,
    V050,
    V047,
    V046,
    V045,
    V044,
    V043,
    V042,
    V041,
)
"""Newest first."""

_VERSION = re.compile(
    r"v?(\d{1,4}\.\d{1,4}\.\d{1,4}(?:(?:a|b|rc|\.post|\.dev)\d{1,6})?)(?:[-+].*)?"
)


def known_releases() -> tuple[str, ...]:
    """Return every server release that a dialect is pinned to, newest first."""
    return tuple(release for dialect in DIALECTS for release in reversed(dialect.releases))


def release_of(version: str) -> str:
    """Return the release in a version text such as `0.5.6-g3e11e108`, or "" if there is none."""
    match = _VERSION.fullmatch(version.strip())
    return match.group(1) if match else ""


def dialect_of(release: str) -> Dialect:
    """Return the dialect of a server release.

    Raises LocalProtocolError for a release that is not known: ids differ by release, and a
    wrong guess can clear a cache or kill a server.
    """
    for dialect in DIALECTS:
        if release in dialect.releases:
            return dialect
    raise LocalProtocolError(
        f"server release {clip(release)} is not known, expected one of "
        f"{', '.join(known_releases())}"
    )

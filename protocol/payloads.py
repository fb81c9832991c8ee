"""What the frames of each operation are, by generation: payloads, results and key fields.

Each generation is written as what differs from a later one.  Data only: which numbers the
operations have is in `protocol.dialects`, how a value is packed in `protocol.fields`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    Kind,
    key_kind,
)
from protocol.ops import Op

KEY_FIELDS_041 = (
    *("model_name", "world_size", "worker_id"),
    *("token_ids", "start", "end", "request_id"),
)
KEY_FIELDS_044 = (*KEY_FIELDS_041, "cache_salt")
KEY_FIELDS_055 = (*KEY_FIELDS_044, "request_configs", "num_kv_readers")
KEY_FIELDS_057 = tuple("token_bytes" if f == "token_ids" else f for f in KEY_FIELDS_055)

_INSTANCE = Field("instance_id", INT)
_REQUEST = Field("request_id", STR)
_EVENT = Field("event", BYTES)
_TP_SIZE = Field("tp_size", INT)


@dataclass(frozen=True, slots=True)
class Shape:
    payload: tuple[Field, ...]
    result: Kind | None = None
    pending: bool = False


def _shapes(
    key_fields: tuple[str, ...], *, handles: Kind = HANDLES, block_ids: Kind = BLOCK_IDS
) -> dict[Op, Shape]:
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
        Op.REGISTER_KV_CACHE: Shape(register),
        Op.UNREGISTER_KV_CACHE: Shape((_INSTANCE,)),
        Op.STORE: Shape((key, _INSTANCE, blocks, _EVENT), TRANSFER),
        Op.RETRIEVE: Shape((key, _INSTANCE, blocks, _EVENT, skip), TRANSFER),
        Op.LOOKUP: Shape((key, _TP_SIZE)),
        Op.QUERY_PREFETCH_STATUS: Shape((_REQUEST,), INT, pending=True),
        Op.WAIT_PREFETCH_STATUS: Shape((_REQUEST, Field("timeout_s", FLOAT)), INT, pending=True),
        Op.QUERY_PREFETCH_LOOKUP_HITS: Shape((_REQUEST,), INT, pending=True),
        Op.FREE_LOOKUP_LOCKS: Shape((key, _TP_SIZE)),
        Op.END_SESSION: Shape((_REQUEST,)),
        Op.REGISTER_ENGINE_DRIVEN: Shape((Field("registration", MAP),), POOL_INFO),
        Op.UNREGISTER_ENGINE_DRIVEN: Shape((_INSTANCE,)),
        Op.PREPARE_STORE: Shape((key, _INSTANCE), STORE_PLAN),
        Op.COMMIT_STORE: Shape((key, _INSTANCE, Field("data", BYTES)), BOOL),
        Op.PREPARE_RETRIEVE: Shape((key, _INSTANCE), RETRIEVE_PLAN),
        Op.COMMIT_RETRIEVE: Shape((key, _INSTANCE), BOOL),
        Op.CLEAR: Shape((Field("force", BOOL),)),
        Op.GET_CHUNK_SIZE: Shape((), INT),
        Op.PING: Shape((Field("instance_id", OPT_INT),), BOOL),
        Op.REPORT_BLOCK_ALLOCATION: Shape(
            (_INSTANCE, Field("model_name", STR), Field("records", MAPS))
        ),
        Op.GET_EXPERIMENTAL: Shape((), STRS),
        Op.NOOP: Shape((), STR),
    }


def _without(shape: Shape, *names: str) -> Shape:
    return replace(shape, payload=tuple(f for f in shape.payload if f.name not in names))


SHAPES_056 = _shapes(KEY_FIELDS_055)
_CLEAR_ALL = _without(SHAPES_056[Op.CLEAR], "force")
SHAPES_055 = {**_shapes(KEY_FIELDS_055, handles=PICKLED_HANDLES), Op.CLEAR: _CLEAR_ALL}
SHAPES_050 = {**_shapes(KEY_FIELDS_044, handles=PICKLED_HANDLES), Op.CLEAR: _CLEAR_ALL}
SHAPES_047 = {**SHAPES_050, Op.PING: _without(SHAPES_050[Op.PING], "instance_id")}
_FLAT_044 = _shapes(KEY_FIELDS_044, handles=PICKLED_HANDLES, block_ids=FLAT_BLOCK_IDS)
SHAPES_046 = {
    **_FLAT_044,
    Op.CLEAR: _CLEAR_ALL,
    Op.PING: SHAPES_047[Op.PING],
    Op.REGISTER_KV_CACHE: _without(_FLAT_044[Op.REGISTER_KV_CACHE], "engine_group_infos"),
    Op.REGISTER_ENGINE_DRIVEN: replace(_FLAT_044[Op.REGISTER_ENGINE_DRIVEN], result=None),
}
SHAPES_044 = {
    **SHAPES_046,
    Op.REGISTER_KV_CACHE: _without(
        _FLAT_044[Op.REGISTER_KV_CACHE], "engine_group_infos", "engine_type"
    ),
}
_FLAT_041 = _shapes(KEY_FIELDS_041, handles=PICKLED_HANDLES, block_ids=FLAT_BLOCK_IDS)
_JOB = Shape((Field("job_id", INT),), INT, pending=True)
SHAPES_043 = {
    **_FLAT_041,
    Op.CLEAR: _CLEAR_ALL,
    Op.PING: SHAPES_047[Op.PING],
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
SHAPES_041 = {
    **SHAPES_043,
    Op.REGISTER_KV_CACHE: _without(SHAPES_043[Op.REGISTER_KV_CACHE], "layout_hints"),
}
_BASE_057 = _shapes(KEY_FIELDS_057)
SHAPES_057 = {
    **_BASE_057,
    Op.REGISTER_ENGINE_DRIVEN: replace(
        _BASE_057[Op.REGISTER_ENGINE_DRIVEN], result=POOL_AND_NULL_INFO
    ),
    Op.FREE_LOOKUP_LOCKS: Shape(
        (*_BASE_057[Op.FREE_LOOKUP_LOCKS].payload, Field("extra_ranges", INT_LISTS, ()))
    ),
    Op.PREPARE_STORE: Shape(
        (*_BASE_057[Op.PREPARE_STORE].payload, Field("skipped_chunks", INT_LISTS, ())), STORE_PLAN
    ),
}

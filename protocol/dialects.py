"""One row for each generation of the MP wire: operation ids, payload order, key fields.

A release of the server is a row here and a recorded session in the tests, nothing else.  Data
only: what a number means is in `protocol.ops`, how a value is packed in `protocol.fields`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from protocol.errors import LocalProtocolError
from protocol.fields import (
    BLOCK_IDS,
    BOOL,
    BYTES,
    FLOAT,
    HANDLES,
    INT,
    MAP,
    MAPS,
    OPT_INT,
    POOL_INFO,
    RETRIEVE_PLAN,
    STORE_PLAN,
    STR,
    TRANSFER,
    Field,
    Kind,
    key_kind,
)
from protocol.ops import Op
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
    op_names: the server takes an operation's lower-case name in place of its number.
    null_block_id: a chunk whose block ids all equal it is never stored (default of the server).
    """

    name: str
    releases: tuple[str, ...]
    ops: Mapping[Op, OpRow]
    key_fields: tuple[str, ...]
    op_names: bool
    null_block_id: int


_KEY_FIELDS_056 = (
    "model_name",
    "world_size",
    "worker_id",
    "token_ids",
    "start",
    "end",
    "request_id",
    "cache_salt",
    "request_configs",
    "num_kv_readers",
)
_KEY = Field("key", key_kind(_KEY_FIELDS_056))
_INSTANCE = Field("instance_id", INT)
_REQUEST = Field("request_id", STR)
_BLOCK_IDS = Field("block_ids", BLOCK_IDS)
_EVENT = Field("event", BYTES)

_OPS_056: Mapping[Op, OpRow] = {
    Op.REGISTER_KV_CACHE: OpRow(
        id=1,
        payload=(
            _INSTANCE,
            Field("kv_cache", HANDLES),
            Field("model_name", STR),
            Field("world_size", INT),
            Field("engine_type", STR),
            Field("layout_hints", MAP),
            Field("engine_group_infos", MAPS),
        ),
        result=None,
    ),
    Op.UNREGISTER_KV_CACHE: OpRow(id=2, payload=(_INSTANCE,), result=None),
    Op.STORE: OpRow(id=6, payload=(_KEY, _INSTANCE, _BLOCK_IDS, _EVENT), result=TRANSFER),
    Op.RETRIEVE: OpRow(
        id=7,
        payload=(_KEY, _INSTANCE, _BLOCK_IDS, _EVENT, Field("skip_first_n_tokens", INT)),
        result=TRANSFER,
    ),
    Op.LOOKUP: OpRow(id=8, payload=(_KEY, Field("tp_size", INT)), result=None),
    Op.QUERY_PREFETCH_STATUS: OpRow(id=9, payload=(_REQUEST,), result=INT, pending=True),
    Op.WAIT_PREFETCH_STATUS: OpRow(
        id=10, payload=(_REQUEST, Field("timeout_s", FLOAT)), result=INT, pending=True
    ),
    Op.FREE_LOOKUP_LOCKS: OpRow(id=12, payload=(_KEY, Field("tp_size", INT)), result=None),
    Op.END_SESSION: OpRow(id=13, payload=(_REQUEST,), result=None),
    Op.REGISTER_ENGINE_DRIVEN: OpRow(
        id=14, payload=(Field("registration", MAP),), result=POOL_INFO
    ),
    Op.UNREGISTER_ENGINE_DRIVEN: OpRow(id=15, payload=(_INSTANCE,), result=None),
    Op.PREPARE_STORE: OpRow(id=16, payload=(_KEY, _INSTANCE), result=STORE_PLAN),
    Op.COMMIT_STORE: OpRow(id=17, payload=(_KEY, _INSTANCE, Field("data", BYTES)), result=BOOL),
    Op.PREPARE_RETRIEVE: OpRow(id=18, payload=(_KEY, _INSTANCE), result=RETRIEVE_PLAN),
    Op.COMMIT_RETRIEVE: OpRow(id=19, payload=(_KEY, _INSTANCE), result=BOOL),
    Op.CLEAR: OpRow(id=20, payload=(Field("force", BOOL),), result=None),
    Op.GET_CHUNK_SIZE: OpRow(id=21, payload=(), result=INT),
    Op.PING: OpRow(id=22, payload=(Field("instance_id", OPT_INT),), result=BOOL),
    Op.NOOP: OpRow(id=24, payload=(), result=STR),
}

V056 = Dialect(
    name="0.5.6",
    releases=("0.5.6",),
    ops=_OPS_056,
    key_fields=_KEY_FIELDS_056,
    op_names=True,
    null_block_id=0,
)

DIALECTS: tuple[Dialect, ...] = (V056,)

_VERSION = re.compile(
    r"v?(\d{1,4}\.\d{1,4}\.\d{1,4}(?:(?:a|b|rc|\.post|\.dev)\d{1,6})?)(?:[-+].*)?"
)


def known_releases() -> tuple[str, ...]:
    """Return every server release that a dialect is pinned to."""
    return tuple(release for dialect in DIALECTS for release in dialect.releases)


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

"""One row for each generation of the MP wire: operation ids, payload order, key fields, quirks.

A release of the server is a row here and a recorded session in the tests, nothing else.  Data
only: what a number means is in `protocol.ops`, which frames it carries in `protocol.payloads`, how
a value is packed in `protocol.fields`.  What a generation cannot do is a field of its row, so that
nobody else asks for a version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from protocol.dialect import Dialect, OpRow
from protocol.errors import LocalProtocolError
from protocol.fields import InlineForm
from protocol.httpapi import HTTP_041, HTTP_045, HTTP_051
from protocol.inline.envelope import decode_envelope, encode_envelope
from protocol.inline.reading import decode_tensor_list
from protocol.inline.writing import encode_tensor_list
from protocol.ops import Op
from protocol.payloads import (
    KEY_FIELDS_041,
    KEY_FIELDS_044,
    KEY_FIELDS_055,
    KEY_FIELDS_057,
    SHAPES_041,
    SHAPES_043,
    SHAPES_044,
    SHAPES_046,
    SHAPES_047,
    SHAPES_050,
    SHAPES_055,
    SHAPES_056,
    SHAPES_057,
    Shape,
)
from protocol.values import clip

_TORCH_STREAM = InlineForm("torch stream", encode_tensor_list, decode_tensor_list)
_ENVELOPE = InlineForm("envelope", encode_envelope, decode_envelope)


def _rows(shapes: Mapping[Op, Shape], ids: Mapping[Op, int]) -> dict[Op, OpRow]:
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

V056 = Dialect(
    name="0.5.6",
    releases=("0.5.6",),
    ops=_rows(SHAPES_056, _IDS_056),
    key_fields=KEY_FIELDS_055,
    inline=_TORCH_STREAM,
    http=HTTP_051,
    null_block_id=0,
    op_names=True,
)
V057 = replace(
    V056,
    name="0.5.7",
    releases=("0.5.7rc2",),
    ops=_rows(SHAPES_057, _IDS_056),
    key_fields=KEY_FIELDS_057,
    inline=_ENVELOPE,
)
V055 = replace(
    V056,
    name="0.5.5",
    releases=("0.5.5",),
    ops=_rows(SHAPES_055, _IDS_055),
    op_names=False,
    maps_cuda=False,
    lookup_reads_end=False,
)
V054 = replace(
    V055,
    name="0.5.4",
    releases=("0.5.4",),
    ops=_rows(SHAPES_050, _IDS_053),
    key_fields=KEY_FIELDS_044,
    cpu_reads_hnd=True,
    refuses_unregistered=False,
)
V053 = replace(V054, name="0.5.3", releases=("0.5.3",), null_block_id=None)
V051 = replace(
    V053,
    name="0.5.1",
    releases=("0.5.1", "0.5.2"),
    ops=_rows(SHAPES_050, _IDS_050),
    lookup_keeps_part=True,
)
V050 = replace(V051, name="0.5.0", releases=("0.5.0",), http=HTTP_045, mixed_groups=False)
V047 = replace(
    V050,
    name="0.4.7",
    releases=("0.4.7",),
    ops=_rows(SHAPES_047, _IDS_047),
    unregister_answered=False,
    told_by=Op.PING,
)
V046 = replace(
    V047,
    name="0.4.6",
    releases=("0.4.6",),
    ops=_rows(SHAPES_046, _IDS_046),
    maps_cpu=False,
    unregister_answered=True,
    told_by=Op.NOOP,
)
V045 = replace(
    V046,
    name="0.4.5",
    releases=("0.4.5",),
    ops=_rows(SHAPES_046, _IDS_043),
    verified=False,
    engine_driven=False,
    told_by=Op.GET_CHUNK_SIZE,
)
V044 = replace(
    V045,
    name="0.4.4",
    releases=("0.4.4",),
    ops=_rows(SHAPES_044, _IDS_043),
    http=HTTP_041,
)
V043 = replace(
    V044,
    name="0.4.3",
    releases=("0.4.3",),
    ops=_rows(SHAPES_043, _IDS_043),
    key_fields=KEY_FIELDS_041,
)
V042 = replace(
    V043,
    name="0.4.2",
    releases=("0.4.2",),
    ops=_rows(SHAPES_041, _IDS_042),
    told_by=Op.PING,
)
V041 = replace(
    V042,
    name="0.4.1",
    releases=("0.4.1",),
    ops=_rows(SHAPES_041, _IDS_041),
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

"""Frames to messages and back, for one dialect, both sides; sans-IO.

A request is `[uid, op, payload...]`, a reply `[uid, op]` or `[uid, op, result]`; each frame but
a request's uid is one msgpack document.  Any frames that a peer sends give a message or a
RemoteProtocolError, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import msgpack

from protocol.bounds import FEW, check_msgpack
from protocol.dialect import Dialect, OpRow
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.fields import REQUIRED, Kind
from protocol.messages import VOID, Incoming
from protocol.ops import Op
from protocol.values import clip

MAX_REQUEST_FRAMES = 16
"""The longest payload has 7 frames; more than this is nobody's request."""

MAX_REPLY_FRAMES = 8
"""A reply has 2 or 3; more than this is nobody's answer, and its frames need not be kept."""

MAX_HEAD_BYTES = 256
"""A uid or an operation is a few bytes; longer ones are not kept."""

MAX_FRAME_BYTES = 2**32 + 64
"""A msgpack bin holds at most 2^32-1 bytes."""

LARGE_BYTES = 1 << 20
"""From this size on, bytes are not copied more often than they must be: KV data sent inline."""

_BIN32 = 0xC6
_BIN32_HEAD_BYTES = 5
_MAX_BIN_BYTES = 2**32 - 1


def unpack(frame: bytes | memoryview, place: str, elements: int = FEW) -> Any:
    """Decode one msgpack document; RemoteProtocolError names the place if it is not one.

    One that claims more than so many elements is refused before it is decoded.  A document that is
    nothing but large bytes is a view of the frame.
    """
    if len(frame) > MAX_FRAME_BYTES:
        raise RemoteProtocolError(f"{place}: {len(frame)} bytes, at most {MAX_FRAME_BYTES}")
    if len(frame) > LARGE_BYTES and frame[0] == _BIN32:
        content = memoryview(frame)[_BIN32_HEAD_BYTES:]
        if len(content) == int.from_bytes(frame[1:_BIN32_HEAD_BYTES], "big"):
            return content
    check_msgpack(frame, place, elements)
    try:
        return msgpack.unpackb(frame)
    except Exception as error:
        shown = ascii(bytes(frame[:24]))
        raise RemoteProtocolError(
            f"{place}: {len(frame)} bytes starting {shown} are not one msgpack document "
            f"({type(error).__name__})"
        ) from error


def encode_request(dialect: Dialect, uid: int, op: Op, args: Sequence[Any]) -> tuple[bytes, ...]:
    """Return the frames of a request; `args` are the payload's values in order.

    Raises LocalProtocolError for an operation that the dialect lacks, another number of
    arguments than it takes, or a value that cannot be sent.
    """
    row = row_of(dialect, op)
    if len(args) != len(row.payload):
        args = _with_defaults(row, op, args)
    head = (msgpack.packb(uid), op_frame(row.id))
    if not args:
        return head
    return head + tuple(
        _pack(field.kind, arg, f"{op.value}.{field.name}")
        for field, arg in zip(row.payload, args, strict=True)
    )


def _with_defaults(row: OpRow, op: Op, args: Sequence[Any]) -> Sequence[Any]:
    left_out = [field.default for field in row.payload[len(args) :]]
    if len(args) > len(row.payload) or REQUIRED in left_out:
        names = ", ".join(field.name for field in row.payload)
        raise LocalProtocolError(f"{op.value} takes ({names}), got {len(args)} values")
    return (*args, *left_out)


@cache
def op_frame(op_id: int) -> bytes:
    """Return the operation frame of a request, which every reply echoes byte for byte."""
    packed: bytes = msgpack.packb(op_id)
    return packed


def row_of(dialect: Dialect, op: Op) -> OpRow:
    """Return an operation's row, or raise LocalProtocolError if this dialect has none."""
    row = dialect.ops.get(op)
    if row is None:
        raise LocalProtocolError(f"{op.value} does not exist in release {dialect.name}")
    return row


def _pack(kind: Kind, value: Any, place: str) -> bytes:
    try:
        # `to_wire` is inside: a handle's extension is packed there.
        return b"".join(_packed(kind.to_wire(value)))
    except (TypeError, ValueError, OverflowError) as error:
        raise LocalProtocolError(f"{place}: cannot be packed: {error}") from error


def _packed(value: Any) -> Iterator[bytes]:
    """Yield what msgpack packs a value to, in pieces: packing large bytes copies them twice."""
    if _is_large(value):
        yield bytes((_BIN32,)) + len(value).to_bytes(_BIN32_HEAD_BYTES - 1, "big")
        yield value
    elif isinstance(value, dict) and any(map(_is_large, value.values())):
        yield msgpack.Packer().pack_map_header(len(value))
        for name, item in value.items():
            yield msgpack.packb(name)
            yield from _packed(item)
    else:
        yield msgpack.packb(value)


def _is_large(value: Any) -> bool:
    return isinstance(value, bytes) and LARGE_BYTES <= len(value) <= _MAX_BIN_BYTES


def encode_reply(dialect: Dialect, request: Incoming, result: Any) -> tuple[bytes, ...]:
    """Return the frames of a server's reply; VOID gives the two-frame form."""
    if result is VOID:
        return request.uid, request.op_frame
    row = row_of(dialect, request.op)
    if row.result is None:
        raise LocalProtocolError(f"{request.op.value} has no result, got {clip(result)}")
    body = _pack(row.result, result, f"{request.op.value} result")
    return request.uid, request.op_frame, body


def decode_result(row: OpRow, op: Op, frames: Sequence[bytes]) -> Any:
    """Return the result in a reply's frames, which start `[uid, op]`.

    More than MAX_REPLY_FRAMES of them need not be given: there is no such reply.
    """
    if len(frames) == 2:
        if row.result is not None and not row.pending:
            raise RemoteProtocolError(f"{op.value}: the reply lacks its result")
        return VOID
    if len(frames) != 3:
        raise RemoteProtocolError(
            f"{op.value}: the reply has {_count_of(frames)} frames, expected 2 or 3"
        )
    if row.result is None:
        raise RemoteProtocolError(f"{op.value}: the reply has a result, expected none")
    value = unpack(frames[2], f"{op.value} result", row.result.elements)
    try:
        return row.result.from_wire(value)
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"{op.value} result: {error}") from error


def _count_of(frames: Sequence[bytes]) -> str:
    more = len(frames) > MAX_REPLY_FRAMES
    return f"over {MAX_REPLY_FRAMES}" if more else str(len(frames))


def decode_op(dialect: Dialect, frame: bytes | memoryview) -> Op:
    """Return the operation that an op frame names, by number or (0.5.6) by name."""
    value = unpack(frame, "operation")
    for op, row in dialect.ops.items():
        by_id = type(value) is int and value == row.id
        if by_id or (dialect.op_names and type(value) is str and value == op.value):
            return op
    raise RemoteProtocolError(f"operation {clip(value)} is not known in {dialect.name}")


def decode_request(dialect: Dialect, frames: Sequence[bytes | memoryview]) -> Incoming:
    """Read a client's request, as a server does.

    Raises RemoteProtocolError for a bad frame count, operation or payload; a real server logs
    such a request and stays silent.
    """
    if not 2 <= len(frames) <= MAX_REQUEST_FRAMES:
        raise RemoteProtocolError(
            f"a request has 2 to {MAX_REQUEST_FRAMES} frames, got {len(frames)}"
        )
    if len(frames[0]) > MAX_HEAD_BYTES or len(frames[1]) > MAX_HEAD_BYTES:
        raise RemoteProtocolError(f"uid and operation have at most {MAX_HEAD_BYTES} bytes")
    op = decode_op(dialect, frames[1])
    row = dialect.ops[op]
    payload = frames[2:]
    if len(payload) != len(row.payload):
        raise RemoteProtocolError(
            f"{op.value}: {len(payload)} payload frames, expected {len(row.payload)}"
        )
    args = [
        _decode_field(field.kind, f"{op.value}.{field.name}", frame)
        for field, frame in zip(row.payload, payload, strict=True)
    ]
    return Incoming(uid=bytes(frames[0]), op_frame=bytes(frames[1]), op=op, args=tuple(args))


def _decode_field(kind: Kind, place: str, frame: bytes | memoryview) -> Any:
    value = unpack(frame, place, kind.elements)
    try:
        return kind.from_wire(value)
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"{place}: {error}") from error

"""One client connection, sans-IO: uids, the pending table, tombstones.

Owns which requests wait for an answer and what became of those that no longer do.  Takes
`now_ns` and owns no clock; returns frames and events and owns no socket.  Every request leaves
the table by exactly one of: a reply, a malformed reply, `abandon`.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from protocol import codec
from protocol.dialect import Dialect
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.messages import (
    NO_UID,
    DuplicateReply,
    Event,
    LateReply,
    MalformedReply,
    Outgoing,
    Reply,
    UnknownReply,
)
from protocol.ops import Op
from protocol.values import clip

MAX_PENDING = 1024
"""A worker has a handful of calls in flight; more means that the server has stopped answering."""

MAX_TOMBSTONES = 4096
"""How many ended requests are remembered, to tell a late or second reply from an unknown one."""


class _End(enum.Enum):
    ANSWERED = "answered"
    GIVEN_UP = "given up"
    WITHDRAWN = "withdrawn"


# Every call makes one of each: plain tuples take a fifth of the time of named ones.
_Pending = tuple[Op, int]
"""The operation, and when it was sent."""

_Tombstone = tuple[Op, _End, int]
"""The operation, how it ended, and when."""


class ClientSession:
    """The client side of one DEALER connection; uids are integers that count from 0."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._next_uid = 0
        self._pending: dict[int, _Pending] = {}
        self._tombstones: OrderedDict[int, _Tombstone] = OrderedDict()

    @property
    def pending_count(self) -> int:
        """Return how many requests wait for an answer."""
        return len(self._pending)

    def request(self, op: Op, args: Sequence[Any], *, now_ns: int) -> Outgoing:
        """Encode a request and enter it into the pending table.

        Raises LocalProtocolError if it cannot be encoded or the table is full.
        """
        if len(self._pending) >= MAX_PENDING:
            raise LocalProtocolError(
                f"{MAX_PENDING} requests are waiting for an answer; {op.value} is not sent"
            )
        uid = self._next_uid
        frames = codec.encode_request(self._dialect, uid, op, args)
        self._next_uid += 1
        self._pending[uid] = (op, now_ns)
        return Outgoing(uid, op, frames)

    def receive(self, frames: Sequence[bytes], *, now_ns: int) -> Event:
        """Turn a server's frames into an event; never raises for what a peer sent."""
        try:
            uid = self._uid_of(frames)
        except RemoteProtocolError as error:
            return MalformedReply(uid=NO_UID, reason=str(error))
        pending = self._pending.get(uid)
        if pending is None:
            return self._unexpected(uid, now_ns)
        op, sent_ns = pending
        try:
            result = self._result_of(op, frames)
        except RemoteProtocolError as error:
            self._bury(uid, _End.ANSWERED, now_ns)
            return MalformedReply(uid=uid, reason=str(error))
        self._bury(uid, _End.ANSWERED, now_ns)
        return Reply(uid, op, result, now_ns - sent_ns)

    def abandon(self, uid: int, *, now_ns: int, withdrawn: bool = False) -> None:
        """Give up one request; does nothing if it has ended already."""
        if uid in self._pending:
            self._bury(uid, _End.WITHDRAWN if withdrawn else _End.GIVEN_UP, now_ns)

    def _bury(self, uid: int, end: _End, now_ns: int) -> None:
        op, _ = self._pending.pop(uid)
        self._tombstones[uid] = (op, end, now_ns)
        if len(self._tombstones) > MAX_TOMBSTONES:
            self._tombstones.popitem(last=False)

    def _unexpected(self, uid: int, now_ns: int) -> Event:
        tombstone = self._tombstones.get(uid)
        if tombstone is None:
            return UnknownReply(uid=uid)
        op, end, ended_ns = tombstone
        if end is _End.ANSWERED:
            return DuplicateReply(uid=uid, op=op)
        # Its answer has come now: another one after this is a duplicate.
        self._tombstones[uid] = (op, _End.ANSWERED, now_ns)
        return LateReply(uid=uid, op=op, late_ns=now_ns - ended_ns, withdrawn=end is _End.WITHDRAWN)

    @staticmethod
    def _uid_of(frames: Sequence[bytes]) -> int:
        if len(frames) < 2:
            raise RemoteProtocolError(f"a reply has 2 or 3 frames, got {len(frames)}")
        if len(frames[0]) > codec.MAX_HEAD_BYTES:
            raise RemoteProtocolError(f"a reply's uid has {len(frames[0])} bytes")
        uid = codec.unpack(frames[0], "reply uid")
        if type(uid) is not int or uid < 0:
            raise RemoteProtocolError(f"reply uid {clip(uid)} is not one of ours")
        return uid

    def _result_of(self, op: Op, frames: Sequence[bytes]) -> Any:
        row = codec.row_of(self._dialect, op)
        if frames[1] != codec.op_frame(row.id):
            named = codec.unpack(frames[1], "reply operation")
            raise RemoteProtocolError(
                f"the reply to {op.value} (id {row.id}) is for operation {clip(named)}"
            )
        return codec.decode_result(row, op, frames)

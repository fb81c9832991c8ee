"""What crosses the wire, as values: requests, replies, and the shapes of their results.

Owns the frozen dataclasses that the codec and the session hand out.  Knows no byte of their
encoding (codec.py), no operation table (ops.py) and no connection.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from protocol.ops import Op


class Void(enum.Enum):
    """The result of a reply without a result frame.

    For most operations it means "done"; for the prefetch queries it means "still running".
    """

    VOID = "void"


VOID = Void.VOID


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferResult:
    """Answer to STORE and RETRIEVE: `[event, ok]` (0.3.15 and later).

    `event` is the server's event handle (64 bytes on CUDA, a stub on CPU).  `ok` is a claim,
    not a proof: STORE also answers True when nothing was stored (0.5.6).
    """

    event: bytes
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolInfo:
    """Answer to an engine-driven registration: the server's L1 pool, or `""`/0 for inline.

    `null_block_id` None: the server does not say which id it is (before 0.5.7), or has none.
    """

    shm_name: str
    pool_bytes: int
    null_block_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Where one chunk object lies in the server's shared-memory pool; `shape` is in elements."""

    offset: int
    length: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlan:
    """Answer to PREPARE_STORE.

    `inline` True: the server has no pool, send every chunk of the range with COMMIT_STORE.
    Else write `slots[i]` with chunk `chunk_indices[i]` of the range; no slots: all is cached.
    """

    inline: bool
    slots: tuple[Slot, ...]
    chunk_indices: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievePlan:
    """Answer to PREPARE_RETRIEVE: `slots`, one a chunk, or `data`, a tensor-list stream."""

    success: bool
    data: bytes
    slots: tuple[Slot, ...]


class Outgoing(NamedTuple):
    """A request that is ready to be sent: its uid and its ZMQ frames.

    This and `Reply` are named tuples, since every call makes one of each: they take a third of
    the time of a frozen dataclass.
    """

    uid: int
    op: Op
    frames: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A request as a server received it; `uid` and `op_frame` are echoed byte for byte."""

    uid: bytes
    op_frame: bytes
    op: Op
    args: Sequence[Any]


class Reply(NamedTuple):
    """The one answer to a pending request."""

    uid: int
    op: Op
    result: Any
    latency_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LateReply:
    """An answer to a request that had been given up `late_ns` before.

    `withdrawn`: not for its deadline, but because the caller no longer wanted it.
    """

    uid: int
    op: Op
    late_ns: int
    withdrawn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateReply:
    """A second answer to a request that had been answered."""

    uid: int
    op: Op


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownReply:
    """An answer to a request that was never sent on this connection."""

    uid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MalformedReply:
    """Frames that are not a valid reply.

    `uid` names the pending request that it ends (its outcome is unknown), or NO_UID.
    """

    uid: int
    reason: str


NO_UID = -1

Event = Reply | LateReply | DuplicateReply | UnknownReply | MalformedReply

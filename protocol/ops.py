"""The operations of the MP protocol and what each means to a caller: data only.

Which number an operation has, and which frames it carries, differs by release: see
`protocol.dialects`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Op(enum.Enum):
    """An operation; the value is the lower-case name that 0.5.6 also accepts on the wire."""

    REGISTER_KV_CACHE = "register_kv_cache"
    UNREGISTER_KV_CACHE = "unregister_kv_cache"
    STORE = "store"
    RETRIEVE = "retrieve"
    LOOKUP = "lookup"
    QUERY_PREFETCH_STATUS = "query_prefetch_status"
    WAIT_PREFETCH_STATUS = "wait_prefetch_status"
    QUERY_PREFETCH_LOOKUP_HITS = "query_prefetch_lookup_hits"
    FREE_LOOKUP_LOCKS = "free_lookup_locks"
    END_SESSION = "end_session"
    REGISTER_ENGINE_DRIVEN = "register_kv_cache_engine_driven_context"
    UNREGISTER_ENGINE_DRIVEN = "unregister_kv_cache_engine_driven_context"
    PREPARE_STORE = "prepare_store"
    COMMIT_STORE = "commit_store"
    PREPARE_RETRIEVE = "prepare_retrieve"
    COMMIT_RETRIEVE = "commit_retrieve"
    CLEAR = "clear"
    GET_CHUNK_SIZE = "get_chunk_size"
    PING = "ping"
    REPORT_BLOCK_ALLOCATION = "report_block_allocation"
    GET_EXPERIMENTAL = "get_experimental"
    NOOP = "noop"

    # Members are equal only to themselves; hashing the name instead costs more than a lookup.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTraits:
    """What a caller must know before it repeats or gives up an operation.

    idempotent: sending it twice leaves the server as once.
    takes_locks: on success the server holds read locks for the caller (0.4.1 and later).
    gives_locks: on success it gives them back.
    moves_data: bytes of KV pages move, so its time depends on the size.
    """

    idempotent: bool = True
    takes_locks: bool = False
    gives_locks: bool = False
    moves_data: bool = False


_PLAIN = OpTraits()

TRAITS: dict[Op, OpTraits] = {
    Op.REGISTER_KV_CACHE: _PLAIN,
    Op.UNREGISTER_KV_CACHE: _PLAIN,
    Op.STORE: OpTraits(moves_data=True),
    Op.RETRIEVE: OpTraits(idempotent=False, gives_locks=True, moves_data=True),
    Op.LOOKUP: OpTraits(idempotent=False, takes_locks=True),
    # The first answer that is not "pending" consumes the result (0.4.4 and later).
    Op.QUERY_PREFETCH_STATUS: OpTraits(idempotent=False),
    Op.WAIT_PREFETCH_STATUS: OpTraits(idempotent=False),
    # Asking for the hits of a running lookup does not consume its result (0.4.3 to 0.5.5).
    Op.QUERY_PREFETCH_LOOKUP_HITS: _PLAIN,
    Op.FREE_LOOKUP_LOCKS: OpTraits(idempotent=False, gives_locks=True),
    Op.END_SESSION: _PLAIN,
    Op.REGISTER_ENGINE_DRIVEN: _PLAIN,
    Op.UNREGISTER_ENGINE_DRIVEN: _PLAIN,
    Op.PREPARE_STORE: OpTraits(idempotent=False),
    Op.COMMIT_STORE: OpTraits(idempotent=False, moves_data=True),
    Op.PREPARE_RETRIEVE: OpTraits(idempotent=False, moves_data=True),
    Op.COMMIT_RETRIEVE: OpTraits(idempotent=False, gives_locks=True),
    Op.CLEAR: _PLAIN,
    Op.GET_CHUNK_SIZE: _PLAIN,
    Op.PING: _PLAIN,
    # Engines tell which blocks a request got, and do not wait for the answer.
    Op.REPORT_BLOCK_ALLOCATION: _PLAIN,
    Op.GET_EXPERIMENTAL: _PLAIN,
    Op.NOOP: _PLAIN,
}

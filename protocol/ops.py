"""The operations of the MP protocol by name: data only.

Which number an operation has, and which frames it carries, differs by release: see
`protocol.dialects`.
"""

from __future__ import annotations

import enum


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


MOVING = (Op.STORE, Op.RETRIEVE, Op.COMMIT_STORE, Op.PREPARE_RETRIEVE)
"""The operations that move bytes of KV pages, so that their time depends on the size."""

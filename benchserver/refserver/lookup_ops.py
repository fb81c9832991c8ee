"""LOOKUP, its result, its locks, and the end of a request; and the operations without state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from benchserver.refserver.core import Core, Handler
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.sessions import NO_RESULT
from protocol.keys import CacheKey
from protocol.messages import VOID
from protocol.ops import Op
from protocol.values import clip


class LookupOps:
    """Handlers that touch the index and the sessions, but no bytes."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def table(self) -> Mapping[Op, Handler]:
        """Return the handlers by operation."""
        return {
            Op.LOOKUP: self._lookup,
            Op.QUERY_PREFETCH_STATUS: self._query,
            # There is nothing to wait for: a lookup has its result when it is answered.
            Op.WAIT_PREFETCH_STATUS: self._query,
            Op.FREE_LOOKUP_LOCKS: self._free_locks,
            Op.END_SESSION: self._end_session,
            Op.CLEAR: self._clear,
            Op.GET_CHUNK_SIZE: self._chunk_size,
            Op.PING: self._ping,
            Op.NOOP: self._noop,
        }

    async def _lookup(self, args: Sequence[Any]) -> Any:
        key: CacheKey = args[0]
        core, now_ns = self._core, self._core.clock.now_ns()
        if not core.registry.knows(key.model_name, key.world_size):
            core.journal.line(f"LOOKUP: nobody serves {clip(key.model_name)} x{key.world_size}")
            core.sessions.put_result(key.request_id, 0, now_ns)
            return VOID
        readers = _readers_of(key)
        core.sessions.open(key.request_id, now_ns).hits = NO_RESULT
        hits = core.cache.lock_prefix(core.rows_of(key), readers=readers, now_ns=now_ns)
        core.sessions.put_result(key.request_id, hits, now_ns)
        return VOID

    async def _query(self, args: Sequence[Any]) -> Any:
        request_id: str = args[0]
        hits = self._core.sessions.take_result(request_id, self._core.clock.now_ns())
        return max(hits, 0)

    async def _free_locks(self, args: Sequence[Any]) -> Any:
        key: CacheKey = args[0]
        core, now_ns = self._core, self._core.clock.now_ns()
        if key.start >= key.end:
            return VOID
        session = core.sessions.open(key.request_id, now_ns)
        if session.hits == NO_RESULT:
            core.sessions.take_result(key.request_id, now_ns)
        if session.hits == NO_RESULT:
            # Locks belong to nobody: guessing a range could take another reader's.
            core.journal.line(f"FREE_LOOKUP_LOCKS: {clip(key.request_id)} has no lookup result")
            return VOID
        readers = _readers_of(key)
        first = max(0, key.start) // core.config.chunk_size
        rows = islice(core.rows_of(key), first, max(first, session.hits))
        for row in rows:
            core.cache.unlock(row, count=readers, now_ns=now_ns)
        return VOID

    async def _end_session(self, args: Sequence[Any]) -> Any:
        request_id: str = args[0]
        self._core.sessions.end(request_id)
        return VOID

    async def _clear(self, args: Sequence[Any]) -> Any:
        self._core.cache.clear(force=bool(args[0]), now_ns=self._core.clock.now_ns())
        return VOID

    async def _chunk_size(self, _args: Sequence[Any]) -> Any:
        return self._core.config.chunk_size

    async def _ping(self, args: Sequence[Any]) -> Any:
        instance_id: int | None = args[0]
        if instance_id is not None:
            self._core.registry.touch(instance_id, self._core.clock.now_ns(), ping=True)
        return True

    async def _noop(self, _args: Sequence[Any]) -> Any:
        return "OK"


def _readers_of(key: CacheKey) -> int:
    """Return how many readers each object gets a lock for; a client must say it (0.5.5+)."""
    if key.num_kv_readers < 1:
        raise RefusalError(f"num_kv_readers is {key.num_kv_readers}, expected at least 1")
    return key.num_kv_readers

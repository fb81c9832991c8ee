"""LOOKUP, its result, its locks, and the end of a request; and the operations without state."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from benchserver.refserver.core import Core, Handler
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.sessions import NO_RESULT
from benchserver.refserver.tiers.backing import Backing
from protocol.keys import CacheKey
from protocol.messages import VOID
from protocol.ops import Op
from protocol.values import clip, is_int_list

_MAX_WAIT_S = 60.0
"""A longer WAIT_PREFETCH_STATUS is cut: a client's later requests wait behind it."""

MAX_PREFETCHES = 1024
"""Lookups behind L1 at once, far more than any bench has; each holds a request's tokens."""


class LookupOps:
    """Handlers that touch the index and the sessions, but no bytes."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._jobs: dict[str, asyncio.Task[None]] = {}

    def table(self) -> Mapping[Op, Handler]:
        """Return the handlers by operation."""
        return {
            Op.LOOKUP: self._lookup,
            Op.QUERY_PREFETCH_STATUS: self._query,
            Op.WAIT_PREFETCH_STATUS: self._wait,
            Op.QUERY_PREFETCH_LOOKUP_HITS: self._lookup_hits,
            Op.FREE_LOOKUP_LOCKS: self._free_locks,
            Op.END_SESSION: self._end_session,
            Op.CLEAR: self._clear,
            Op.GET_CHUNK_SIZE: self._chunk_size,
            Op.PING: self._ping,
            Op.REPORT_BLOCK_ALLOCATION: self._block_allocation,
            Op.GET_EXPERIMENTAL: self._experimental,
            Op.NOOP: self._noop,
        }

    async def _lookup(self, args: Sequence[Any]) -> Any:
        key: CacheKey = args[0]
        core, now_ns = self._core, self._core.clock.now_ns()
        if not core.config.dialect.lookup_reads_end:
            key = replace(key, end=len(key.token_ids))
        tokens = min(max(0, key.end), len(key.token_ids))
        core.lookups.requested_chunks += tokens // core.config.chunk_size
        if not core.registry.knows(key.model_name, key.world_size):
            core.sessions.put_result(key.request_id, 0, now_ns)
            return VOID
        readers = self._readers_of(key, args[1])
        session = core.sessions.open(key.request_id, now_ns)
        session.hits = NO_RESULT
        session.groups = len(core.group_bytes(key.model_name, key.world_size))
        if core.backing is not None:
            self._prefetch(core.backing, key, readers)
            return VOID
        hits = core.cache.lock_prefix(core.rows_of(key), readers=readers, now_ns=now_ns)
        self._put_result(key, hits)
        return VOID

    def _put_result(self, key: CacheKey, hits: int) -> None:
        self._core.lookups.hit_chunks += hits
        self._core.sessions.put_result(key.request_id, hits, self._core.clock.now_ns())

    def _prefetch(self, backing: Backing, key: CacheKey, readers: int) -> None:
        """Look behind L1 in the background; queries answer "pending" until it is done."""
        self._stop_prefetch(key.request_id)
        if len(self._jobs) >= MAX_PREFETCHES:
            raise RefusalError(f"{MAX_PREFETCHES} lookups wait for L2, one more is not taken")
        task = asyncio.ensure_future(self._look_behind(backing, key, readers))
        self._jobs[key.request_id] = task
        self._core.lookups.under_way = len(self._jobs)
        task.add_done_callback(lambda done: self._job_ended(key.request_id, done))

    async def _look_behind(self, backing: Backing, key: CacheKey, readers: int) -> None:
        core = self._core
        sizes = core.group_bytes(key.model_name, key.world_size)
        rows = tuple(core.rows_of(key))
        hits = await backing.lock_prefix(rows, group_bytes=sizes, readers=readers)
        self._put_result(key, hits)

    def _job_ended(self, request_id: str, task: asyncio.Task[None]) -> None:
        if self._jobs.get(request_id) is task:
            del self._jobs[request_id]
            self._core.lookups.under_way = len(self._jobs)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._core.journal.line(f"LOOKUP {clip(request_id)}: the prefetch failed: {error!r}")

    def _stop_prefetch(self, request_id: str) -> None:
        """Cancel a running prefetch; it gives back the locks that it took."""
        task = self._jobs.pop(request_id, None)
        self._core.lookups.under_way = len(self._jobs)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Cancel every prefetch and wait for its end."""
        tasks = tuple(self._jobs.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _query(self, args: Sequence[Any]) -> Any:
        request_id: str = args[0]
        if request_id in self._jobs:
            return VOID
        hits = self._core.sessions.take_result(request_id, self._core.clock.now_ns())
        return max(hits, 0)

    async def _lookup_hits(self, args: Sequence[Any]) -> Any:
        """The hits of a lookup that is not consumed yet, without consuming it (0.5.5, before)."""
        request_id: str = args[0]
        if request_id in self._jobs:
            return VOID
        return max(self._core.sessions.peek_result(request_id), 0)

    async def _wait(self, args: Sequence[Any]) -> Any:
        request_id, timeout_s = args
        task = self._jobs.get(request_id)
        if task is not None:
            await asyncio.wait((task,), timeout=min(max(0.0, timeout_s), _MAX_WAIT_S))
        return await self._query((request_id,))

    async def _free_locks(self, args: Sequence[Any]) -> Any:
        key: CacheKey = args[0]
        core, now_ns = self._core, self._core.clock.now_ns()
        if key.start >= key.end:
            return VOID
        self._stop_prefetch(key.request_id)
        session = core.sessions.open(key.request_id, now_ns)
        if session.hits == NO_RESULT:
            core.sessions.take_result(key.request_id, now_ns)
        if session.hits == NO_RESULT:
            # Locks belong to nobody: guessing a range could take another reader's.
            core.journal.line(f"FREE_LOOKUP_LOCKS: {clip(key.request_id)} has no lookup result")
            return VOID
        readers = self._readers_of(key, args[1])
        first = max(0, key.start) // core.config.chunk_size
        rows = islice(core.rows_of(key), first, max(first, session.hits))
        for row in rows:
            core.cache.unlock(row, count=readers, now_ns=now_ns)
        return VOID

    async def _end_session(self, args: Sequence[Any]) -> Any:
        request_id: str = args[0]
        self._stop_prefetch(request_id)
        session = self._core.sessions.end(request_id)
        if session is not None:
            self._core.touch(session)  # as the real server does (0.5.6)
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

    async def _block_allocation(self, args: Sequence[Any]) -> Any:
        """Take an engine's report of the blocks that requests got; nothing here needs it.

        Its instance id is that of a process, not of a registration.
        """
        for record in args[2]:
            if not _is_allocation(record):
                raise RefusalError(
                    f"a block allocation is {clip(record)}, expected req_id as a string, "
                    "new_block_ids and new_token_ids as arrays of integers"
                )
        return VOID

    async def _noop(self, _args: Sequence[Any]) -> Any:
        return "OK"

    async def _experimental(self, _args: Sequence[Any]) -> Any:
        return []

    def _readers_of(self, key: CacheKey, tp_size: int) -> int:
        """Return how many readers each object gets a lock for.

        The key must say it (0.5.5 and later); before, more workers than KV ranks share objects.
        """
        if not self._core.config.dialect.keys_name_readers:
            return tp_size if tp_size > max(1, key.world_size) else 1
        if key.num_kv_readers < 1:
            raise RefusalError(f"num_kv_readers is {key.num_kv_readers}, expected at least 1")
        return key.num_kv_readers


def _is_allocation(record: Mapping[str, Any]) -> bool:
    lists = (record.get("new_block_ids"), record.get("new_token_ids"))
    return isinstance(record.get("req_id"), str) and all(map(is_int_list, lists))

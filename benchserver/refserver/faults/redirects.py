"""Faults that read other objects than were asked for, in every transfer mode.

The request is handled with another key.  The locks move along, so that nothing but the bytes is
wrong: the other objects get the lock that RETRIEVE uses up, the right ones give theirs back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from benchserver.refserver.faults.call import Call
from benchserver.refserver.faults.fault import Act
from benchserver.refserver.faults.pages import is_done
from protocol.keys import CacheKey
from protocol.ops import Op

OtherKey = Callable[[Call], CacheKey | None]


def redirected(choose: OtherKey) -> Mapping[Op, Act]:
    """Return what retrieves under the key that `choose` returns, or as asked if that is None."""

    async def retrieve(call: Call) -> Any:
        other = choose(call)
        if other is None or not _holds(call, other) or not call.fires():
            return await call.proceed()
        core = call.core
        asked = core.objects_of(call.key, core.groups_of(call.key))
        core.cache.unlock(asked, count=1, now_ns=call.now_ns)
        core.cache.lock_prefix(core.rows_of(other), readers=1, now_ns=call.now_ns)
        _unlock_before(call, other)
        # Sessions remember the hashes of their tokens, so the other key has one of its own.
        other = replace(other, request_id=f"{call.key.request_id}#redirected")
        call.notes.put(_transfer(call), other)
        try:
            return await call.proceed_with(other)
        finally:
            core.sessions.end(other.request_id)

    async def commit(call: Call) -> Any:
        other = call.notes.take(_transfer(call))
        if other is None:
            return await call.proceed()
        try:
            return await call.proceed_with(other)
        finally:
            call.core.sessions.end(other.request_id)

    return {
        Op.STORE: _remember,
        Op.COMMIT_STORE: _remember,
        Op.RETRIEVE: retrieve,
        Op.PREPARE_RETRIEVE: retrieve,
        Op.COMMIT_RETRIEVE: commit,
    }


def of_first_rank(call: Call) -> CacheKey | None:
    """Return rank 0's key of the same tokens, for every other rank."""
    return replace(call.key, worker_id=0) if call.key.worker_id else None


def of_sequence_before(call: Call) -> CacheKey | None:
    """Return the key of what the same rank stored before, if it is as long."""
    seen: tuple[CacheKey, ...] = call.notes.get(_rank(call)) or ()
    others = [key for key in seen if key.token_ids != call.key.token_ids]
    if not others or others[-1].end < call.key.end:
        return None
    return replace(others[-1], start=call.key.start, end=call.key.end)


async def _remember(call: Call) -> Any:
    """Pass a STORE, and remember its key and the one before it."""
    result = await call.proceed()
    if is_done(result):
        seen: tuple[CacheKey, ...] = call.notes.get(_rank(call)) or ()
        call.notes.put(_rank(call), (*seen[-1:], call.key))
    return result


def _holds(call: Call, other: CacheKey) -> bool:
    """Tell whether every object of a range is stored; takes no lock."""
    cache, now_ns = call.core.cache, call.now_ns
    size = call.core.config.chunk_size
    found = cache.lock_prefix(call.core.rows_of(other), readers=1, now_ns=now_ns)
    _unlock(call, other, found)
    return found == other.end // size


def _unlock_before(call: Call, other: CacheKey) -> None:
    """Give back the locks on chunks before the range, which nobody will read."""
    _unlock(call, other, other.start // call.core.config.chunk_size)


def _unlock(call: Call, key: CacheKey, rows: int) -> None:
    for _, row in zip(range(rows), call.core.rows_of(key), strict=False):
        call.core.cache.unlock(row, count=1, now_ns=call.now_ns)


def _transfer(call: Call) -> tuple[int, str]:
    return call.args[1], call.key.request_id


def _rank(call: Call) -> tuple[str, int | None]:
    return call.key.model_name, call.key.worker_id

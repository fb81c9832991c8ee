"""Faults that leave something behind: locks, sessions, registrations, running reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchserver.refserver.faults.call import Call
from benchserver.refserver.faults.fault import Act, instead
from benchserver.refserver.faults.lookups import is_hit
from protocol.messages import VOID
from protocol.ops import Op


@instead
async def swallow(_call: Call) -> Any:
    """Acknowledge, and do nothing."""
    return VOID


@instead
async def keep_read(_call: Call) -> Any:
    """Acknowledge the end of a read, and let it run on."""
    return True


def locked_twice() -> Mapping[Op, Act]:
    """Return what takes one lock more, for nobody, on everything that a LOOKUP hits."""

    async def look_up(call: Call) -> Any:
        call.notes.put(call.key.request_id, call.key)
        return await call.proceed()

    async def query(call: Call) -> Any:
        hits = await call.proceed()
        key = call.notes.take(call.args[0])
        if key is not None and is_hit(hits) and call.fires():
            call.core.cache.lock_prefix(call.core.rows_of(key), readers=1, now_ns=call.now_ns)
        return hits

    return {Op.LOOKUP: look_up, Op.QUERY_PREFETCH_STATUS: query}

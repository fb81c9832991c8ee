"""Faults that leave something behind: locks, sessions, registrations, reads, memory, files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from benchserver.refserver.faults.call import Active, Call
from benchserver.refserver.faults.fault import Act, instead
from benchserver.refserver.faults.lookups import is_hit
from protocol.messages import VOID
from protocol.ops import Op

_LEAKED_BYTES = 100_000
_LEAKED = "leaked"


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


async def keep_memory(call: Call) -> Any:
    """Do what was asked for, and keep 100 kB for ever."""
    if call.fires():
        _leaked(call.active).append(b"leak" * (_LEAKED_BYTES // 4))
    return await call.proceed()


async def keep_descriptor(call: Call) -> Any:
    """Do what was asked for, and leave a file open."""
    if call.fires():
        _leaked(call.active).append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    return await call.proceed()


def closed_at_last(active: Active) -> Callable[[], None]:
    """Return what closes the files that were left open, once the fault is switched off."""

    def close() -> None:
        while _leaked(active):
            os.close(_leaked(active).pop())

    return close


def _leaked(active: Active) -> list[Any]:
    """Return what a fault has kept: one note, since notes are bounded and a leak is not."""
    if active.notes.get(_LEAKED) is None:
        active.notes.put(_LEAKED, [])
    kept: list[Any] = active.notes.get(_LEAKED)
    return kept

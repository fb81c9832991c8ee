"""Faults of STORE: acknowledged, and not, not wholly or not yet done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from benchserver.refserver.cache import ObjectKey
from benchserver.refserver.config import ALIGN_BYTES
from benchserver.refserver.faults.call import Call
from benchserver.refserver.faults.fault import Act, instead
from benchserver.refserver.faults.transfers import done
from benchserver.refserver.refusal import RefusalError
from protocol.dialects import V056
from protocol.ops import Op

_STUFFING = "bench-server fault: full_l1"


@instead
async def drop_store(call: Call) -> Any:
    """Say that everything was stored, and do nothing."""
    return await done(call)


@instead
async def drop_commit(_call: Call) -> Any:
    """Say that everything was committed, and do nothing."""
    return True


@instead
async def stick_store(call: Call) -> Any:
    """Reserve what was to be stored, for ever, and say that it was stored."""
    core = call.core
    instance = core.registry.mapped.get(call.args[1])
    if instance is not None:
        sizes = instance.layout.group_bytes
        core.cache.reserve(core.objects_of(call.key, len(sizes)), sizes, call.now_ns)
    return await done(call)


def acknowledged_early(answer: Callable[[Call], Awaitable[Any]]) -> Act:
    """Return a STORE that answers at once and is done later."""

    @instead
    async def act(call: Call) -> Any:
        call.active.start(_do_later(call))
        return await answer(call)

    return act


async def committed(_call: Call) -> Any:
    """Return the answer of a COMMIT_STORE that is done."""
    return True


async def _do_later(call: Call) -> None:
    await call.core.clock.sleep_ns(call.settings.delay_ns)
    try:
        await call.proceed()
    except RefusalError as error:
        call.core.journal.line(f"refused: {error}")
    finally:
        # The client has ended its session long ago, and the handler has opened another.
        call.core.sessions.end(call.key.request_id)


async def leave_out_middle(call: Call) -> Any:
    """Store all chunks but the middle one (of two: the second), and say that all were stored."""
    if call.chunks < 2 or not call.fires():
        return await call.proceed()
    return await call.handle(without_middle(call))


def without_middle(call: Call) -> tuple[Any, ...]:
    """Return a STORE's arguments with null blocks for the middle chunk: it is not stored then."""
    key, instance_id, block_ids, *rest = call.args
    middle = call.chunks // 2
    tables = []
    for ids in block_ids:
        size = len(ids) // call.chunks
        tables.append(
            [
                V056.null_block_id if position // size == middle else block
                for position, block in enumerate(ids)
            ]
            if size
            else ids
        )
    return key, instance_id, tables, *rest


@instead
async def fill_l1(call: Call) -> Any:
    """Take all memory that can be had, and keep it; then let the call be handled."""
    cache, size = call.core.cache, call.core.arena.nbytes
    while size >= ALIGN_BYTES:
        number = call.notes.get(_STUFFING) or 0
        call.notes.put(_STUFFING, number + 1)
        key = ObjectKey(number.to_bytes(32, "big"), _STUFFING, 1, 0, "")
        if cache.reserve([key], (size,), call.now_ns).refused:
            size //= 2
    return await call.proceed()


def cleared_between() -> Mapping[Op, Act]:
    """Return what clears the cache, locked objects too, before a LOOKUP that follows a STORE."""

    async def note(call: Call) -> Any:
        call.notes.put("stored", True)
        return await call.proceed()

    async def look_up(call: Call) -> Any:
        if call.notes.get("stored") and call.fires():
            call.core.cache.clear(force=True, now_ns=call.now_ns)
        return await call.proceed()

    return {Op.STORE: note, Op.COMMIT_STORE: note, Op.LOOKUP: look_up}

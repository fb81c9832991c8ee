"""Faults of STORE: acknowledged, and not, not wholly or not yet done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchserver.refserver.faults.call import Call
from benchserver.refserver.faults.fault import Act, instead
from benchserver.refserver.faults.pages import is_done
from benchserver.refserver.faults.transfers import done
from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.store.freelist import ALIGN_BYTES
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


@instead
async def read_late(call: Call) -> Any:
    """Answer at once, and read the source, and store it, some time later."""
    call.active.start(_do_later(call))
    return await done(call)


async def _do_later(call: Call) -> None:
    await call.core.clock.sleep_ns(call.settings.delay_ns)
    sessions, request_id = call.core.sessions, call.key.request_id
    was_open = sessions.get(request_id) is not None
    try:
        await call.proceed()
    except RefusalError as error:
        call.core.journal.line(f"refused: {error}")
    finally:
        # The client may have ended its session long ago, and the handler has opened another.
        session = sessions.get(request_id)
        if not was_open and session is not None and not session.groups:
            sessions.end(request_id)


def acknowledged_early() -> Mapping[Op, Act]:
    """Return what hides from LOOKUP, for a while, what was stored anew."""

    async def store(call: Call) -> Any:
        new = [name for name in _objects_of(call) if not call.core.cache.has(name)]
        result = await call.proceed()
        if is_done(result) and call.fires():
            visible_ns = call.now_ns + call.settings.delay_ns
            for name in new:
                call.notes.put(name, visible_ns)
        return result

    async def look_up(call: Call) -> Any:
        end = _visible_chunks(call) * call.core.config.chunk_size
        return await call.proceed_with(replace(call.key, end=min(call.key.end, end)))

    return {Op.STORE: store, Op.COMMIT_STORE: store, Op.LOOKUP: look_up}


def _objects_of(call: Call) -> tuple[ObjectKey, ...]:
    """Return the objects of a STORE, none of one that is refused."""
    try:
        return call.core.objects_of(call.key, call.core.groups_of(call.key))
    except RefusalError:
        return ()


def _visible_chunks(call: Call) -> int:
    """Return how many chunks a LOOKUP asks for before the first that is still hidden."""
    now_ns, chunks = call.now_ns, 0
    for row in call.core.rows_of(call.key):
        if any((call.notes.get(name) or now_ns) > now_ns for name in row):
            break
        chunks += 1
    return chunks


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

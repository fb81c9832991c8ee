"""Faults of LOOKUP and of the query for its result: wrong counts, other tenants, endless work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from benchserver.refserver.faults.call import Active, Call
from benchserver.refserver.faults.fault import Act, after, instead
from benchserver.refserver.faults.stores import without_middle
from benchserver.refserver.store.hashing import ROOT, Chain, chain
from protocol.messages import VOID
from protocol.ops import Op

NEVER_NS = 1 << 62
_FIRST = "first model name"


def is_hit(result: Any) -> bool:
    """Tell whether a query was answered with at least one chunk."""
    return result is not VOID and result > 0


def is_miss(result: Any) -> bool:
    """Tell whether a query was answered with none."""
    return result is not VOID and result == 0


def counting(by: int, wanted: Callable[[Any], bool]) -> Mapping[Op, Act]:
    """Return what miscounts the wanted results."""
    act = after(lambda _call, hits: hits + by, wanted)
    return {Op.QUERY_PREFETCH_STATUS: act, Op.WAIT_PREFETCH_STATUS: act}


def counted_over_hole() -> Mapping[Op, Act]:
    """Return what leaves out the middle chunk of every STORE, and counts on behind it."""

    async def store(call: Call) -> Any:
        return await (call.handle(without_middle(call)) if call.chunks > 1 else call.proceed())

    async def look_up(call: Call) -> Any:
        call.notes.put(call.key.request_id, max(0, call.key.end) // call.core.config.chunk_size)
        return await call.proceed()

    async def query(call: Call) -> Any:
        hits = await call.proceed()
        chunks = call.notes.take(call.args[0]) or 0
        return chunks if is_hit(hits) and hits < chunks and call.fires() else hits

    return {Op.STORE: store, Op.LOOKUP: look_up, Op.QUERY_PREFETCH_STATUS: query}


@instead
async def without_salt(call: Call) -> Any:
    """Handle a call as if its key had no salt."""
    return await call.proceed_with(replace(call.key, cache_salt=""))


async def without_end(call: Call) -> Any:
    """Handle a call as if its range ended with the last whole chunk of its tokens."""
    size = call.core.config.chunk_size
    end = len(call.key.token_ids) // size * size
    if call.key.end >= end or not call.fires():
        return await call.proceed()
    return await call.proceed_with(replace(call.key, end=end))


@instead
async def without_model(call: Call) -> Any:
    """Handle a call as if its key had the model name that was seen first."""
    name = _first_name(call, call.key.model_name)
    return await call.proceed_with(replace(call.key, model_name=name))


@instead
async def register_without_model(call: Call) -> Any:
    """Register tensors under the model name that was seen first."""
    instance_id, handles, model_name, *rest = call.args
    return await call.handle((instance_id, handles, _first_name(call, model_name), *rest))


@instead
async def register_engine_without_model(call: Call) -> Any:
    """Register an engine-driven instance under the model name that was seen first."""
    fields = call.args[0]
    if not isinstance(fields.get("model_name"), str):
        return await call.proceed()  # which refuses it
    name = _first_name(call, fields["model_name"])
    return await call.proceed_with({**fields, "model_name": name})


def _first_name(call: Call, model_name: str) -> str:
    """Return the first model name that the fault has seen, this one if it is the first."""
    if call.notes.get(_FIRST) is None:
        call.notes.put(_FIRST, model_name)
    name: str = call.notes.get(_FIRST)
    return name


def hash_without_prefix(active: Active) -> Callable[[], None]:
    """Let a chunk's hash cover its own tokens alone; returns what takes that back."""
    namer = active.core.namer
    before: Chain = namer.chain

    def alone(tokens: Any, *, chunk_size: int, start: int, root: bytes) -> Any:
        if not active.fires():
            yield from before(tokens, chunk_size=chunk_size, start=start, root=root)
            return
        for first in range(start, len(tokens) - chunk_size + 1, chunk_size):
            own = tokens[first : first + chunk_size]
            yield from chain(own, chunk_size=chunk_size, start=0, root=ROOT)

    namer.chain = alone

    def restore() -> None:
        namer.chain = before

    return restore


def running_prefetch(*, ends: bool) -> Mapping[Op, Act]:
    """Return what answers "still running" after a LOOKUP, for a while or for ever."""

    async def look_up(call: Call) -> Any:
        result = await call.proceed()
        if call.fires():
            wait_ns = call.settings.delay_ns if ends else NEVER_NS
            call.notes.put(call.key.request_id, call.now_ns + wait_ns)
        return result

    async def query(call: Call) -> Any:
        if call.now_ns < (call.notes.get(call.args[0]) or 0):
            return VOID
        call.notes.take(call.args[0])
        return await call.proceed()

    return {
        Op.LOOKUP: look_up,
        Op.QUERY_PREFETCH_STATUS: query,
        Op.WAIT_PREFETCH_STATUS: query,
    }

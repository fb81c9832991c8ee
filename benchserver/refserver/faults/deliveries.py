"""Faults of what RETRIEVE delivers: wrong bytes, in every transfer mode.

In lmcache_driven mode the client's pages are altered after the copy.  An object in the shared
pool is altered until COMMIT_RETRIEVE, which puts it right again; inline bytes on their way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from benchserver.refserver.faults.call import Call
from benchserver.refserver.faults.fault import Act
from benchserver.refserver.faults.pages import (
    Chunks,
    ObjectChunks,
    encode_objects,
    inline_objects,
    is_done,
    mapped_chunks,
    objects_of_plan,
)
from benchserver.refserver.faults.settings import LAST
from protocol.messages import RetrievePlan
from protocol.ops import Op

Spoil = Callable[[Call, Chunks], None]


def delivery(spoil: Spoil) -> Mapping[Op, Act]:
    """Return what spoils delivered chunks in every mode."""

    async def retrieve(call: Call) -> Any:
        result = await call.proceed()
        chunks = mapped_chunks(call) if is_done(result) else None
        if chunks is not None and call.fires():
            await chunks.run(spoil, call, chunks)
        return result

    async def prepare(call: Call) -> Any:
        plan: RetrievePlan = await call.proceed()
        if not plan.success or not call.fires():
            return plan
        return _spoil_slots(call, plan, spoil) if plan.slots else _spoil_inline(call, plan, spoil)

    return {Op.RETRIEVE: retrieve, Op.PREPARE_RETRIEVE: prepare, Op.COMMIT_RETRIEVE: _put_right}


def _spoil_slots(call: Call, plan: RetrievePlan, spoil: Spoil) -> RetrievePlan:
    objects = objects_of_plan(call, plan)
    kept = [(slot.offset, data.copy()) for slot, data in zip(plan.slots, objects, strict=True)]
    call.notes.put(_transfer(call), kept)
    spoil(call, ObjectChunks(objects, call.core.registry.engine[call.args[1]]))
    return plan


def _spoil_inline(call: Call, plan: RetrievePlan, spoil: Spoil) -> RetrievePlan:
    instance = call.core.registry.engine[call.args[1]]
    objects = inline_objects(plan)
    spoil(call, ObjectChunks(objects, instance))
    return replace(plan, data=encode_objects(objects, instance))


async def _put_right(call: Call) -> Any:
    for offset, data in call.notes.take(_transfer(call)) or ():
        call.core.arena.view(offset, data.size)[:] = data
    return await call.proceed()


def _transfer(call: Call) -> tuple[int, str]:
    return call.args[1], call.key.request_id


def flip_byte(call: Call, chunks: Chunks) -> None:
    """Flip one bit in the middle of one layer of one chunk."""
    layer = _index(call.settings.layer, chunks.layers)
    chunk = _index(call.settings.chunk, chunks.count)
    data = chunks.read(chunk)
    data[layer][tuple(size // 2 for size in data[layer].shape)] ^= 1
    chunks.write(chunk, data)


def _index(wanted: int, count: int) -> int:
    return count - 1 if wanted == LAST else min(wanted, count - 1)


def swap_chunks(_call: Call, chunks: Chunks) -> None:
    """Put the first chunk where the last belongs, and the other way round."""
    first, last = chunks.read(0), chunks.read(chunks.count - 1)
    chunks.write(0, last)
    chunks.write(chunks.count - 1, first)


def mix_layers(_call: Call, chunks: Chunks) -> None:
    """Put the first layer where the next of its shape belongs, and the other way round."""
    for chunk in range(chunks.count):
        data = chunks.read(chunk)
        first = (data[0].shape, data[0].dtype)
        alike = [i for i, layer in enumerate(data) if (layer.shape, layer.dtype) == first]
        other = alike[1] if len(alike) > 1 else 0
        data[0], data[other] = data[other], data[0]
        chunks.write(chunk, data)


def mix_planes(_call: Call, chunks: Chunks) -> None:
    """Put K where V belongs, and V where K does."""
    for chunk in range(chunks.count):
        chunks.write(chunk, [layer[::-1] for layer in chunks.read(chunk)])

"""Faults of lmcache_driven transfers that touch the client's memory, and of their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from benchserver.refserver.faults.call import Call
from benchserver.refserver.faults.fault import Act, instead
from benchserver.refserver.faults.pages import MappedChunks, is_done, mapped_chunks
from protocol.handles import CPU_EVENT_STUB
from protocol.messages import RetrievePlan, TransferResult

_DONE = TransferResult(event=CPU_EVENT_STUB, ok=True)


async def done(call: Call) -> TransferResult:
    """Return the answer of a transfer that is done: a GPU client gets a completed event."""
    instance = call.core.registry.mapped.get(call.args[1])
    return _DONE if instance is None else (await instance.store(b"", ())).answer


def restoring(first_kept: Callable[[int], int]) -> Act:
    """Return a RETRIEVE that leaves the chunks from `first_kept(count)` on as they were."""

    async def act(call: Call) -> Any:
        chunks = mapped_chunks(call)
        if chunks is None or not call.fires():
            return await call.proceed()
        kept = range(first_kept(chunks.count), chunks.count)
        before = await chunks.run(chunks.read_all, kept)
        result = await call.proceed()
        # The client may have been unregistered while the handler ran.
        again = mapped_chunks(call)
        if again is not None:
            await again.run(again.write_all, before)
        return result

    return act


async def overwrite_canary(call: Call) -> Any:
    """RETRIEVE, and flip one bit in the block behind the destination."""
    return await _flipped(call, lambda ids: (max(ids) + 1, min(ids) - 1))


async def overwrite_source(call: Call) -> Any:
    """STORE, and flip one bit of a block that was stored."""
    return await _flipped(call, lambda ids: ids[:1])


async def _flipped(call: Call, choose: Callable[[list[int]], Iterable[int]]) -> Any:
    result = await call.proceed()
    chunks = mapped_chunks(call) if is_done(result) else None
    if chunks is not None and call.fires():
        await _flip_first(call, chunks, choose(list(call.args[2][0])))
    return result


async def _flip_first(call: Call, chunks: MappedChunks, blocks: Iterable[int]) -> None:
    """Flip a bit in the first of these blocks that exists."""
    group = call.core.registry.mapped[call.args[1]].layout.groups[0]
    for block in blocks:
        if 0 <= block < group.num_blocks:
            await chunks.run(chunks.flip, group.layers[0], block)
            return


@instead
async def ignore_skip(call: Call) -> Any:
    """RETRIEVE also what the client wants skipped."""
    return await call.handle((*call.args[:4], 0))


def refuse(_call: Call, result: Any) -> Any:
    """Say no; it was done."""
    if isinstance(result, TransferResult):
        return replace(result, ok=False)
    if isinstance(result, RetrievePlan):
        return RetrievePlan(success=False, data=b"", slots=())
    return False

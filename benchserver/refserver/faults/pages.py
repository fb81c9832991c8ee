"""The bytes that a RETRIEVE delivers or a STORE reads, chunk by chunk, for faults to alter.

One interface over the client's mapped pages and over chunk objects (in the shared pool, or on
their way inline).  A chunk is a list of arrays, one a layer, with planes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

import numpy as np

from benchserver.refserver.faults.call import Call
from benchserver.refserver.instance import Instance
from benchserver.refserver.pages import block_ids as ids_of
from benchserver.refserver.pages.transfer import Pages, word_of
from benchserver.refserver.registry import EngineInstance
from benchserver.refserver.store.arena import Bytes
from protocol.inline.reading import decode_tensor_list
from protocol.inline.tensor import InlineTensor
from protocol.inline.writing import encode_tensor_list
from protocol.messages import RetrievePlan, TransferResult

P = ParamSpec("P")
T = TypeVar("T")


class Chunks(Protocol):
    """The chunks of one call."""

    count: int
    layers: int

    def read(self, chunk: int) -> list[Pages]:
        """Return copies of a chunk's layers."""
        ...

    def write(self, chunk: int, layers: Sequence[Pages]) -> None:
        """Replace a chunk's layers."""
        ...


class MappedChunks:
    """Pages of a client, by the block ids of a STORE or RETRIEVE, on the host or on a GPU.

    Reading and writing come after the client's event and after all that the server has submitted,
    and are done when they return; a GPU may take a while for it, so they belong in `run`.
    """

    def __init__(
        self,
        instance: Instance,
        block_ids: Sequence[Sequence[int]],
        count: int,
        *,
        event: bytes,
    ) -> None:
        self.count = count
        self._instance = instance
        self._event = event
        self._chunks = ids_of.cut(instance.layout, block_ids, count)
        groups = enumerate(instance.layout.groups)
        self._places = [(index, layer) for index, group in groups for layer in group.layers]
        self.layers = len(self._places)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that reads or writes these pages in a thread; they stay mapped."""
        thread = self._instance.thread  # a GPU client that lets it wait has one of its own
        with self._instance.uses.in_use():
            await thread.run(self._instance.blocks.order_after, self._event)
            return await thread.run(function, *args, **kwargs)

    def read(self, chunk: int) -> list[Pages]:
        """Return copies of a chunk's layers."""
        ids = self._chunks[chunk]
        return [self._instance.blocks.read(layer, ids[group]) for group, layer in self._places]

    def write(self, chunk: int, layers: Sequence[Pages]) -> None:
        """Replace a chunk's layers."""
        ids = self._chunks[chunk]
        for (group, layer), data in zip(self._places, layers, strict=True):
            self._instance.blocks.write(layer, ids[group], data)

    def read_all(self, chunks: Iterable[int]) -> dict[int, list[Pages]]:
        """Return copies of some chunks' layers."""
        return {chunk: self.read(chunk) for chunk in chunks}

    def write_all(self, chunks: Mapping[int, Sequence[Pages]]) -> None:
        """Replace some chunks' layers."""
        for chunk, layers in chunks.items():
            self.write(chunk, layers)

    def flip(self, layer: int, block: int) -> None:
        """Flip one bit in the middle of any block of one tensor."""
        page = self._instance.blocks.read(layer, [block])
        page[tuple(size // 2 for size in page.shape)] ^= 1
        self._instance.blocks.write(layer, [block], page)


class ObjectChunks:
    """Chunk objects of an engine-driven client, [plane][layer][slot][hidden]."""

    def __init__(self, objects: Sequence[Bytes], instance: EngineInstance) -> None:
        shape = (1, *instance.shape) if instance.use_mla else instance.shape
        self._arrays = [data.view(word_of(instance.dtype)).reshape(shape) for data in objects]
        self.count = len(objects)
        self.layers = shape[1]

    def read(self, chunk: int) -> list[Pages]:
        """Return copies of a chunk's layers."""
        return [self._arrays[chunk][:, layer].copy() for layer in range(self.layers)]

    def write(self, chunk: int, layers: Sequence[Pages]) -> None:
        """Replace a chunk's layers."""
        for layer, data in enumerate(layers):
            self._arrays[chunk][:, layer] = data


def mapped_chunks(call: Call) -> MappedChunks | None:
    """Return the pages that a STORE or RETRIEVE names, or None if there are none."""
    instance = call.core.registry.mapped.get(call.args[1])
    ids, count = call.args[2], call.chunks
    if instance is None or count < 1 or len(ids) != len(instance.layout.groups):
        return None
    if not ids_of.cover_all(instance.layout, ids, count):
        return None
    if not ids_of.exist(instance.layout, ids_of.cut(instance.layout, ids, count)):
        return None
    event = bytes(call.args[3])
    return MappedChunks(instance, ids, count, event=event)


def objects_of_plan(call: Call, plan: RetrievePlan) -> list[Bytes]:
    """Return the chunk objects that a plan names in the pool, as arrays that write through."""
    return [call.core.arena.view(slot.offset, slot.length) for slot in plan.slots]


def inline_objects(plan: RetrievePlan) -> list[Bytes]:
    """Return copies of the chunk objects that a plan carries."""
    return [np.frombuffer(t.data, dtype=np.uint8).copy() for t in decode_tensor_list(plan.data)]


def encode_objects(objects: Sequence[Bytes], instance: EngineInstance) -> bytes:
    """Return chunk objects as a plan carries them."""
    tensors = [InlineTensor(instance.dtype, instance.shape, data.data) for data in objects]
    return encode_tensor_list(tensors)


def is_done(result: Any) -> bool:
    """Tell whether a transfer was answered with success."""
    if isinstance(result, TransferResult):
        return result.ok
    if isinstance(result, RetrievePlan):
        return result.success
    return result is True

"""engine_driven: the client copies chunks itself, through the shared pool or inline.

A prepared write or read stays open until its COMMIT, its instance's end, or its deadline; until
then its slots are pinned.  What a failed COMMIT_STORE reserved is given back at once (the real
server keeps it until the write TTL).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchserver.refserver.core import Core, Handler
from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.refusal import RefusalError, refused_registration
from benchserver.refserver.registry import EngineInstance, parse_engine_instance
from benchserver.refserver.store.arena import Arena
from benchserver.refserver.store.slots import ObjectSlot
from protocol.errors import RemoteProtocolError
from protocol.inline.tensor import InlineTensor
from protocol.keys import CacheKey
from protocol.messages import VOID, PoolInfo, RetrievePlan, Slot, StorePlan
from protocol.ops import Op
from protocol.values import clip

_NO_PLAN = RetrievePlan(success=False, data=b"", slots=())


@dataclass(frozen=True, slots=True)
class _TransferId:
    """What joins a COMMIT to its PREPARE: the instance and the range, not the request id."""

    instance_id: int
    objects: tuple[ObjectKey, ...]


@dataclass(frozen=True, slots=True)
class _Open:
    slots: tuple[ObjectSlot, ...]
    deadline_ns: int


class EngineOps:
    """Handlers of the engine-driven registration and of PREPARE and COMMIT."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._writes: dict[_TransferId, _Open] = {}
        self._reads: dict[_TransferId, _Open] = {}

    def table(self) -> Mapping[Op, Handler]:
        """Return the handlers by operation."""
        return {
            Op.REGISTER_ENGINE_DRIVEN: self._register,
            Op.UNREGISTER_ENGINE_DRIVEN: self.unregister,
            Op.PREPARE_STORE: self._prepare_store,
            Op.COMMIT_STORE: self._commit_store,
            Op.PREPARE_RETRIEVE: self._prepare_retrieve,
            Op.COMMIT_RETRIEVE: self._commit_retrieve,
        }

    def expire(self, now_ns: int) -> None:
        """Give up prepared transfers that were never committed."""
        self._give_up(lambda _, entry: now_ns >= entry.deadline_ns)

    def drop_instance(self, instance_id: int) -> None:
        """Forget an instance and give up what it prepared."""
        if self._core.registry.engine.pop(instance_id, None) is not None:
            self._give_up(lambda transfer, _: transfer.instance_id == instance_id)

    def _give_up(self, is_over: Callable[[_TransferId, _Open], bool]) -> None:
        cache = self._core.cache
        for held, end in ((self._writes, cache.abort), (self._reads, cache.end_read)):
            for transfer in [t for t, entry in held.items() if is_over(t, entry)]:
                end(held.pop(transfer).slots)

    async def _register(self, args: Sequence[Any]) -> Any:
        with refused_registration(Op.REGISTER_ENGINE_DRIVEN.name, clip(args[0].get("instance_id"))):
            return self._admit(args)

    def _admit(self, args: Sequence[Any]) -> Any:
        core, now_ns = self._core, self._core.clock.now_ns()
        instance_id, instance = parse_engine_instance(
            args[0], chunk_size=core.config.chunk_size, now_ns=now_ns
        )
        if instance_id in core.registry.engine:
            core.registry.touch(instance_id, now_ns)
        elif not core.registry.has_room():
            raise RefusalError("too many registered instances")
        else:
            core.registry.engine[instance_id] = instance
        dialect = core.config.dialect
        if dialect.ops[Op.REGISTER_ENGINE_DRIVEN].result is None:
            return VOID  # 0.4.6 has no shared pool to name
        return PoolInfo(
            shm_name=core.arena.name,
            pool_bytes=core.arena.nbytes if core.arena.name else 0,
            null_block_id=dialect.null_block_id,
        )

    async def unregister(self, args: Sequence[Any]) -> Any:
        """UNREGISTER of an engine-driven instance; an unknown one is not an error."""
        self.drop_instance(args[0])
        return VOID

    async def _prepare_store(self, args: Sequence[Any]) -> Any:
        key, instance_id = args
        core = self._core
        instance = self._instance(instance_id)
        objects = core.objects_of(key)
        if not core.arena.name:
            return StorePlan(inline=True, slots=(), chunk_indices=())
        reservation = await core.reserve(objects, (instance.object_bytes,))
        if core.registry.engine.get(instance_id) is not instance:
            core.cache.abort(reservation.only_slots())
            raise RefusalError(f"instance {instance_id} was unregistered while it waited for room")
        if reservation.refused:
            core.journal.line(f"PREPARE_STORE {clip(key.request_id)}: no room, nothing to write")
        slots = reservation.only_slots()
        if slots:
            transfer = _TransferId(instance_id, objects)
            core.cache.abort(_slots_of(self._writes.pop(transfer, None)))
            self._writes[transfer] = _Open(
                slots, core.clock.now_ns() + core.cache.policy.write_ttl_ns
            )
        return StorePlan(
            inline=False,
            slots=_wire_slots(slots, instance),
            chunk_indices=tuple(index for index, _ in reservation.slots),
        )

    async def _commit_store(self, args: Sequence[Any]) -> Any:
        key, instance_id, data = args
        instance = self._instance(instance_id)
        objects = self._core.objects_of(key)
        if data or not self._core.arena.name:
            return await self._store_inline(key, instance, objects, data)
        entry = self._writes.pop(_TransferId(instance_id, objects), None)
        self._core.commit(_slots_of(entry))
        return entry is not None

    async def _store_inline(
        self,
        key: CacheKey,
        instance: EngineInstance,
        objects: tuple[ObjectKey, ...],
        data: bytes | memoryview,
    ) -> bool:
        core = self._core
        try:
            tensors = await core.copier.run(core.config.dialect.inline.decode, data)
        except RemoteProtocolError as error:
            raise RefusalError(f"COMMIT_STORE: {error}") from error
        reservation = await core.reserve(objects, (instance.object_bytes,))
        if reservation.refused:
            core.journal.line(f"COMMIT_STORE {clip(key.request_id)}: no room, nothing is stored")
        slots = reservation.only_slots()
        ended: Callable[[Sequence[ObjectSlot]], None] = core.cache.abort
        try:
            indices = [index for index, _ in reservation.slots]
            if not all(_fits(tensors, index, instance) for index in indices):
                core.journal.line(f"COMMIT_STORE {clip(key.request_id)}: not the chunks expected")
                return False
            chunks = [tensors[index].data for index in indices]
            await core.copier.run(_write_slots, core.arena, slots, chunks)
            ended = core.commit
        finally:
            ended(slots)
        return True

    async def _prepare_retrieve(self, args: Sequence[Any]) -> Any:
        key, instance_id = args
        core, now_ns = self._core, self._core.clock.now_ns()
        instance = self._instance(instance_id)
        objects = core.objects_of(key)
        slots = core.cache.begin_read(objects, now_ns)
        if not slots or any(slot.nbytes != instance.object_bytes for slot in slots):
            core.cache.end_read(slots or ())
            core.journal.line(f"PREPARE_RETRIEVE {clip(key.request_id)}: a chunk is missing")
            return _NO_PLAN
        if not core.arena.name:
            try:
                tensors = _tensors_of(core.arena, slots, instance)
                data = await core.copier.run(core.config.dialect.inline.encode, tensors)
            finally:
                core.cache.end_read(slots)
            return RetrievePlan(success=True, data=data, slots=())
        transfer = _TransferId(instance_id, objects)
        core.cache.end_read(_slots_of(self._reads.pop(transfer, None)))
        self._reads[transfer] = _Open(slots, now_ns + core.cache.policy.read_ttl_ns)
        return RetrievePlan(success=True, data=b"", slots=_wire_slots(slots, instance))

    async def _commit_retrieve(self, args: Sequence[Any]) -> Any:
        key, instance_id = args
        self._instance(instance_id)
        transfer = _TransferId(instance_id, self._core.objects_of(key))
        self._core.cache.end_read(_slots_of(self._reads.pop(transfer, None)))
        return True

    def _instance(self, instance_id: int) -> EngineInstance:
        registry = self._core.registry
        registry.touch(instance_id, self._core.clock.now_ns())
        instance = registry.engine.get(instance_id)
        if instance is None:
            raise RefusalError(f"engine-driven instance {instance_id} is not registered")
        return instance


def _slots_of(entry: _Open | None) -> tuple[ObjectSlot, ...]:
    return entry.slots if entry is not None else ()


def _wire_slots(slots: Sequence[ObjectSlot], instance: EngineInstance) -> tuple[Slot, ...]:
    return tuple(
        Slot(offset=slot.offset, length=slot.nbytes, shape=instance.shape, dtype=instance.dtype)
        for slot in slots
    )


def _fits(tensors: Sequence[InlineTensor], index: int, instance: EngineInstance) -> bool:
    if index >= len(tensors):
        return False
    tensor = tensors[index]
    return (tensor.shape, tensor.dtype) == (instance.shape, instance.dtype)


def _write_slots(
    arena: Arena, slots: Sequence[ObjectSlot], chunks: Sequence[bytes | memoryview]
) -> None:
    for slot, chunk in zip(slots, chunks, strict=True):
        arena.view(slot.offset, slot.nbytes)[:] = np.frombuffer(chunk, dtype=np.uint8)


def _tensors_of(
    arena: Arena, slots: Sequence[ObjectSlot], instance: EngineInstance
) -> list[InlineTensor]:
    """Return stored chunks as inline tensors over the arena's own memory."""
    return [
        InlineTensor(instance.dtype, instance.shape, arena.view(slot.offset, slot.nbytes).data)
        for slot in slots
    ]

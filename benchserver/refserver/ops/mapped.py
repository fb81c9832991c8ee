"""lmcache_driven: the server maps the client's KV tensors and copies both ways itself.

A client on the host is answered when its copies are done; one on a GPU when they are submitted,
with an event (`gpu`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from benchserver.refserver.core import Core, Handler
from benchserver.refserver.gpu.instance import CudaInstance
from benchserver.refserver.ops.gpu import FAILED as CUDA_FAILED
from benchserver.refserver.ops.gpu import CudaTransfers, Start, are_cuda, checked_event
from benchserver.refserver.pages import block_ids as ids_of
from benchserver.refserver.pages.block_ids import ChunkIds
from benchserver.refserver.pages.layout import Format, KvLayout, layout_of
from benchserver.refserver.pages.transfer import ObjectCopy, retrieve_objects, store_objects
from benchserver.refserver.refusal import RefusalError, refused_registration
from benchserver.refserver.registry import MAX_LAYERS, MAX_WORLD_SIZE, Instance, MappedInstance
from benchserver.refserver.store.cache import Slot
from protocol.handles import CPU_EVENT_STUB, CpuShmHandle, KvHandle
from protocol.keys import CacheKey
from protocol.messages import VOID, TransferResult
from protocol.ops import Op
from protocol.values import clip

_DONE = TransferResult(event=CPU_EVENT_STUB, ok=True)
_FAILED = TransferResult(event=CPU_EVENT_STUB, ok=False)
_UNREGISTERED = TransferResult(event=b"", ok=False)
"""No work was submitted, so there is no event either (0.5.5+)."""


class MappedOps:
    """Handlers of REGISTER_KV_CACHE, UNREGISTER_KV_CACHE, STORE and RETRIEVE."""

    def __init__(self, core: Core, start: Start) -> None:
        """`start` runs what comes after the reply to a GPU client."""
        self._core = core
        self._cuda = CudaTransfers(core, start)

    def table(self) -> Mapping[Op, Handler]:
        """Return the handlers by operation."""
        return {
            Op.REGISTER_KV_CACHE: self._register,
            Op.UNREGISTER_KV_CACHE: self._unregister,
            Op.STORE: self._store,
            Op.RETRIEVE: self._retrieve,
        }

    async def _register(self, args: Sequence[Any]) -> Any:
        with refused_registration(Op.REGISTER_KV_CACHE.name, args[0]):
            return await self._admit(args)

    async def _admit(self, args: Sequence[Any]) -> Any:
        instance_id, handles, model_name, world_size, engine_type, hints, infos = args
        registry, now_ns = self._core.registry, self._core.clock.now_ns()
        if instance_id in registry.mapped:
            # The old tensors stay, as in the real server.
            registry.touch(instance_id, now_ns)
            return VOID
        if not 1 <= world_size <= MAX_WORLD_SIZE or len(handles) > MAX_LAYERS:
            raise RefusalError(
                f"world_size {world_size} with {len(handles)} tensors, "
                f"expected 1 to {MAX_WORLD_SIZE} with at most {MAX_LAYERS}"
            )
        if not registry.has_room():
            raise RefusalError("too many registered instances")
        size = self._core.config.chunk_size
        dialect = self._core.config.dialect
        if dialect.cpu_reads_hnd:
            hints = {**hints, "kv_layout": "HND"}
        layout = layout_of(handles, hints, infos, engine_type=engine_type, chunk_size=size)
        if not dialect.mixed_groups and len({f is Format.MLA for f in layout.formats}) > 1:
            raise RefusalError("this release does not map MLA tensors beside others")
        instance = await self._map(handles, layout, model_name=model_name, world_size=world_size)
        # Others may have been quicker while GPU memory was being mapped.
        if instance_id in registry.mapped:
            instance.close()
        elif not registry.has_room():
            instance.close()
            raise RefusalError("too many registered instances")
        else:
            registry.mapped[instance_id] = instance
        return VOID

    async def _map(
        self, handles: Sequence[KvHandle], layout: KvLayout, *, model_name: str, world_size: int
    ) -> Instance:
        if are_cuda(handles):
            return await self._cuda.open_instance(
                handles, layout, model_name=model_name, world_size=world_size
            )
        return MappedInstance(
            model_name=model_name,
            world_size=world_size,
            layout=layout,
            handles=[handle for handle in handles if isinstance(handle, CpuShmHandle)],
            now_ns=self._core.clock.now_ns(),
        )

    async def _unregister(self, args: Sequence[Any]) -> Any:
        instance = self._core.registry.mapped.get(args[0])
        if isinstance(instance, CudaInstance):
            del self._core.registry.mapped[args[0]]
            await self._cuda.close_instance(instance)
        self._core.registry.remove_mapped(args[0])
        if not self._core.config.dialect.unregister_answered:
            raise RefusalError("UNREGISTER_KV_CACHE: done, but this release never answers it")
        return VOID

    async def _store(self, args: Sequence[Any]) -> Any:
        key, instance_id, block_ids, event = args
        instance = self._instance(instance_id)
        if instance is None:
            return self._unregistered()
        event = _event_of(instance, event)
        layout = instance.layout
        groups = len(layout.groups)
        objects = self._core.objects_of(key, groups)
        count = len(objects) // groups
        if not ids_of.cover_all(layout, block_ids, count):
            return self._fail(instance, key, "STORE: too few block ids")
        chunks = ids_of.cut(layout, block_ids, count)
        if not ids_of.exist(layout, chunks):
            return self._fail(instance, key, "STORE: a block id is out of range")
        pairs = [(found, chunks[index // groups]) for index, found in enumerate(objects)]
        null = self._core.config.dialect.null_block_id
        wanted = [pair for pair in pairs if null is None or not ids_of.is_null(pair[1], null)]
        # In use from here on: while it waits for room, its client may be unregistered.
        with instance.in_use():
            reservation = await self._core.reserve(
                [found for found, _ in wanted], layout.group_bytes
            )
            if reservation.refused:
                # The real server says True here too: only a later LOOKUP proves a STORE.
                self._core.journal.line(f"STORE {clip(key.request_id)}: no room, nothing is stored")
            pairs_stored = [(slot, wanted[index][1]) for index, slot in reservation.slots]
            return await self._fill(instance, event, pairs_stored)

    async def _fill(
        self, instance: Instance, event: bytes, pairs: Sequence[tuple[Slot, ChunkIds]]
    ) -> TransferResult:
        """Copy pages into reserved slots and commit them, or abort them all."""
        slots = [slot for slot, _ in pairs]
        copies = [self._copy(slot, ids) for slot, ids in pairs]
        if isinstance(instance, CudaInstance):
            if not pairs:
                return await self._cuda.done(instance)
            return await self._cuda.store(instance, event, copies, slots)
        ended: Callable[[Sequence[Slot]], None] = self._core.cache.abort
        try:
            if copies:
                await self._core.copier.run(
                    store_objects, instance.layout, instance.pages(), copies
                )
            ended = self._core.commit
        finally:
            ended(slots)
        return _DONE

    async def _retrieve(self, args: Sequence[Any]) -> Any:
        key, instance_id, block_ids, event, skip_tokens = args
        instance = self._instance(instance_id)
        if instance is None:
            self._unlock_unregistered(key)
            return self._unregistered()
        event = _event_of(instance, event)
        layout = instance.layout
        objects = self._core.objects_of(key, len(layout.groups))
        count = len(objects) // len(layout.groups)
        if not ids_of.cover_all(layout, block_ids, count):
            return self._fail(instance, key, "RETRIEVE: too few block ids")
        slots = self._core.cache.begin_read(objects, self._core.clock.now_ns())
        if slots is None:
            return self._fail(instance, key, "RETRIEVE: a chunk is missing or not locked")
        with ExitStack() as reading:
            reading.callback(self._core.cache.end_read, slots)
            if any(slot.nbytes != layout.groups[slot.key.group].nbytes for slot in slots):
                return self._fail(instance, key, "RETRIEVE: a chunk was stored with another layout")
            chunks = ids_of.cut(layout, block_ids, count)
            if not ids_of.exist(layout, chunks):
                return self._fail(instance, key, "RETRIEVE: a block id is out of range")
            copies = self._copies_back(layout, slots, chunks, skip_tokens)
            if isinstance(instance, CudaInstance):
                return await self._cuda.retrieve(instance, event, copies, reading)
            with instance.in_use():
                await self._core.copier.run(retrieve_objects, layout, instance.pages(), copies)
        return _DONE

    def _copies_back(
        self,
        layout: KvLayout,
        slots: Sequence[Slot],
        chunks: Sequence[ChunkIds],
        skip_tokens: int,
    ) -> list[ObjectCopy]:
        """Return the copies of chunk objects into pages."""
        copies = []
        for index, slot in enumerate(slots):
            chunk = index // len(layout.groups)
            skip = ids_of.skipped_blocks(layout, chunk, skip_tokens)
            copies.append(self._copy(slot, chunks[chunk], skip[slot.key.group]))
        return copies

    def _copy(self, slot: Slot, ids: ChunkIds, skip_blocks: int = 0) -> ObjectCopy:
        """Return the copy of one object; `ids` are those of its whole chunk."""
        return ObjectCopy(
            group=slot.key.group,
            data=self._core.arena.view(slot.offset, slot.nbytes),
            block_ids=ids[slot.key.group],
            skip_blocks=skip_blocks,
        )

    def _instance(self, instance_id: int) -> Instance | None:
        registry = self._core.registry
        registry.touch(instance_id, self._core.clock.now_ns())
        instance = registry.mapped.get(instance_id)
        if instance is None:
            self._core.journal.line(f"instance {instance_id} is not registered")
        return instance

    def _unregistered(self) -> TransferResult:
        if not self._core.config.dialect.refuses_unregistered:
            raise RefusalError("this release does not answer for an unregistered instance")
        return _UNREGISTERED

    def _unlock_unregistered(self, key: CacheKey) -> None:
        """Give back the locks that a RETRIEVE of a vanished instance will not use."""
        try:
            objects = self._core.objects_of(key, self._core.groups_of(key))
        except RefusalError:
            return
        self._core.cache.unlock(objects, count=1, now_ns=self._core.clock.now_ns())

    def _fail(self, instance: Instance, key: CacheKey, reason: str) -> TransferResult:
        self._core.journal.line(f"{reason} ({clip(key.request_id)})")
        return CUDA_FAILED if isinstance(instance, CudaInstance) else _FAILED


def _event_of(instance: Instance, event: bytes | memoryview) -> bytes:
    """Return the event that the transfer must come after; on the host anything will do."""
    return checked_event(event) if isinstance(instance, CudaInstance) else bytes(event)

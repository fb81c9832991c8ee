"""lmcache_driven: the server maps the client's KV tensors and copies both ways itself."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from benchserver.refserver.core import Core, Handler
from benchserver.refserver.instance import Instance
from benchserver.refserver.ops.pending import PendingTransfers
from benchserver.refserver.ops.registration import RegistrationOps
from benchserver.refserver.pages import block_ids as ids_of
from benchserver.refserver.pages.block_ids import ChunkIds
from benchserver.refserver.pages.layout import KvLayout
from benchserver.refserver.pages.transfer import ObjectCopy
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.store.slots import ObjectSlot
from protocol.keys import CacheKey
from protocol.messages import TransferResult
from protocol.ops import Op
from protocol.values import clip

Start = Callable[[Coroutine[Any, Any, None]], None]
"""Runs a coroutine beside the handlers, until the server stops."""

_UNREGISTERED = TransferResult(event=b"", ok=False)
"""No work was submitted, so there is no event either (0.5.5+)."""


class MappedOps:
    """Handlers of REGISTER_KV_CACHE, UNREGISTER_KV_CACHE, STORE and RETRIEVE."""

    def __init__(self, core: Core, start: Start) -> None:
        """`start` runs what comes after a reply."""
        self._core = core
        self._start = start
        self._pending = PendingTransfers(core)
        self._registration = RegistrationOps(core)

    def table(self) -> Mapping[Op, Handler]:
        """Return the handlers by operation."""
        return {
            **self._registration.table(),
            Op.STORE: self._store,
            Op.RETRIEVE: self._retrieve,
        }

    async def _store(self, args: Sequence[Any]) -> Any:
        key, instance_id, block_ids, event = args
        instance = self._instance(instance_id)
        if instance is None:
            return self._unregistered()
        event = instance.checked_event(event)
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
        with instance.uses.in_use():
            reservation = await self._core.reserve(
                [found for found, _ in wanted], layout.group_bytes
            )
            if reservation.refused:
                # The real server says True here too: only a later LOOKUP proves a STORE.
                self._core.journal.line(f"STORE {clip(key.request_id)}: no room, nothing is stored")
            pairs_stored = [(slot, wanted[index][1]) for index, slot in reservation.slots]
            return await self._fill(instance, event, pairs_stored)

    async def _fill(
        self, instance: Instance, event: bytes, pairs: Sequence[tuple[ObjectSlot, ChunkIds]]
    ) -> TransferResult:
        """Copy pages into reserved slots and commit them, or abort them all."""
        slots = [slot for slot, _ in pairs]
        copies = [self._copy(slot, ids) for slot, ids in pairs]
        with ExitStack() as failed:
            failed.callback(self._core.cache.abort, slots)
            transfer = await instance.store(event, copies)
            failed.pop_all()
        if transfer.pending is None:
            self._core.commit(slots)
        else:
            self._start(self._pending.end_store(transfer.pending, slots))
        return transfer.answer

    async def _retrieve(self, args: Sequence[Any]) -> Any:
        key, instance_id, block_ids, event, skip_tokens = args
        instance = self._instance(instance_id)
        if instance is None:
            self._unlock_unregistered(key)
            return self._unregistered()
        event = instance.checked_event(event)
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
            transfer = await instance.retrieve(event, copies)
            if transfer.pending is not None:
                self._start(self._pending.end_retrieve(transfer.pending, reading.pop_all()))
        return transfer.answer

    def _copies_back(
        self,
        layout: KvLayout,
        slots: Sequence[ObjectSlot],
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

    def _copy(self, slot: ObjectSlot, ids: ChunkIds, skip_blocks: int = 0) -> ObjectCopy:
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
        return instance.failed

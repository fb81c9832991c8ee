"""A registered client whose KV tensors lie in shared memory of the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from benchserver.clock import Clock
from benchserver.refserver.copier import Copier
from benchserver.refserver.host.tensors import MappedTensors
from benchserver.refserver.instance import Blocks, Digest, Transfer
from benchserver.refserver.liveness import Liveness
from benchserver.refserver.pages.layout import KvLayout
from benchserver.refserver.pages.transfer import ObjectCopy, retrieve_objects, store_objects
from benchserver.refserver.uses import UseCount
from protocol.handles import CPU_EVENT_STUB
from protocol.messages import TransferResult

T = TypeVar("T")

_DONE = Transfer(answer=TransferResult(event=CPU_EVENT_STUB, ok=True))


class MappedInstance:
    """A client whose KV tensors the server has mapped from shared memory (lmcache_driven)."""

    failed = TransferResult(event=CPU_EVENT_STUB, ok=False)

    def __init__(
        self,
        tensors: MappedTensors,
        *,
        model_name: str,
        world_size: int,
        layout: KvLayout,
        copier: Copier,
        now_ns: int,
    ) -> None:
        """`tensors` are unmapped when the client has left and the last use has ended."""
        self.model_name = model_name
        self.world_size = world_size
        self.layout = layout
        self.num_blocks = tensors.num_blocks
        self.liveness = Liveness(last_seen_ns=now_ns)
        self.uses = UseCount(tensors.unmap)
        self.thread = copier
        self.blocks: Blocks = tensors
        self._tensors = tensors

    def checked_event(self, event: bytes | memoryview) -> bytes:
        """Return the event; anything will do, for a client's request comes after its writes."""
        return bytes(event)

    async def store(self, _event: bytes, copies: Sequence[ObjectCopy]) -> Transfer:
        """Copy pages into chunk objects, and return when that is done."""
        if copies:
            with self.uses.in_use():
                await self.thread.run(store_objects, self.layout, self._tensors.pages(), copies)
        return _DONE

    async def retrieve(self, _event: bytes, copies: Sequence[ObjectCopy]) -> Transfer:
        """Copy chunk objects into pages, and return when that is done."""
        with self.uses.in_use():
            await self.thread.run(retrieve_objects, self.layout, self._tensors.pages(), copies)
        return _DONE

    async def digests(
        self, digest: Digest[T], block_ids: Sequence[int], blocks_per_chunk: int
    ) -> T:
        """Return what a digest makes of the layers."""
        with self.uses.in_use():
            return await self.thread.run(
                digest, self._tensors.hashed_layers(), block_ids, blocks_per_chunk
            )

    async def leave(self, _clock: Clock) -> str:
        """Unmap, now or when the last use ends."""
        self.uses.close()
        return ""

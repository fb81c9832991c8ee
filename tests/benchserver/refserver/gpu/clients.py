"""Two ranks of one client, on a GPU that is a stand-in or on the host, with the same content."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchserver.refserver.gpu.instance import CudaInstance
from protocol.handles import CPU_EVENT_STUB
from protocol.messages import VOID, TransferResult
from protocol.ops import Op
from tests.cudastage import (
    EVENT,
    HostStream,
    cpu_instance,
    cuda_handle,
)
from tests.faultstage import CHUNK, FROM, SHAPE, TO, Stage, client_memory, empty_stage, key

SIZE = int(np.prod(SHAPE))
LAYERS = 2
WITHIN_S = 10.0


@dataclass
class Client:
    """Two ranks of one client, on a GPU or on the host, with the same content."""

    stage: Stage
    memories: list[Any]
    event: bytes
    streams: list[HostStream] = field(default_factory=list)

    def pages(self, rank: int) -> Any:
        """Return a rank's memory as [layer][plane][block] ..."""
        return self.memories[rank].reshape(LAYERS, *SHAPE)

    async def settle(self) -> None:
        """Run what the server does after its replies."""
        while self.stage.later:
            await self.stage.later.pop(0)

    async def store(self, name: str, rank: int = 0) -> TransferResult:
        args = (key(name, rank), rank, [FROM], self.event)
        result: TransferResult = await self.stage.call(Op.STORE, *args)
        return result

    async def retrieve(self, name: str, rank: int = 0, skip: int = 0) -> TransferResult:
        args = (key(name, rank), rank, [TO], self.event, skip)
        result: TransferResult = await self.stage.call(Op.RETRIEVE, *args)
        return result

    def rewrite(self, seed: int) -> None:
        """Put other content into the source blocks of all ranks, and poison where it goes."""
        rng = np.random.default_rng(seed)
        for rank in range(2):
            pages = self.pages(rank)
            pages[:, :, FROM] = rng.integers(0, 1 << 16, pages[:, :, FROM].shape)
            pages[:, :, TO] = 0xA5A5

    def counts(self) -> Any:
        return self.stage.core.cache.counts(self.stage.core.clock.now_ns())


@contextmanager
def gpu_client() -> Iterator[Client]:
    with empty_stage() as stage:
        memories = [
            np.random.default_rng(seed).integers(0, 1 << 16, SIZE * LAYERS).astype(np.uint16)
            for seed in (1, 2)
        ]
        client = Client(stage, memories, EVENT)
        nbytes = 2 * SIZE * LAYERS
        handles = [
            cuda_handle(SHAPE, offset=layer * SIZE, storage_bytes=nbytes) for layer in range(LAYERS)
        ]
        for rank in range(2):
            instance, stream = cpu_instance(
                memories[rank],
                handles,
                chunk_size=CHUNK,
                world_size=2,
                runtime=stage.core.cuda,
            )
            stage.core.registry.mapped[rank] = instance
            client.streams.append(stream)
        try:
            yield client
        finally:
            stage.core.cuda.close()


@asynccontextmanager
async def host_client() -> AsyncIterator[Client]:
    with empty_stage() as stage, client_memory(1) as first, client_memory(2) as second:
        client = Client(stage, [first[1][0].base, second[1][0].base], CPU_EVENT_STUB)
        for rank, (handles, _) in enumerate((first, second)):
            hints = {"kv_layout": "NHD"}
            args: tuple[Any, ...] = (rank, handles, "m", 2, "vllm", hints, [])
            assert await stage.call(Op.REGISTER_KV_CACHE, *args) is VOID
        try:
            yield client
        finally:
            client.memories.clear()


def ended(instance: CudaInstance) -> None:
    assert instance.gone is not None
    instance.gone.result(WITHIN_S)

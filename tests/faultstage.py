"""A server without sockets, with two registered ranks, for the tests of faults."""

from __future__ import annotations

import mmap
import os
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchserver.clock import VirtualClock
from benchserver.refserver.config import ServerConfig
from benchserver.refserver.copier import Copier
from benchserver.refserver.core import Core, Handler
from benchserver.refserver.faults.board import Switchboard, Tamper
from benchserver.refserver.journal import Journal
from benchserver.refserver.ops.engine import EngineOps
from benchserver.refserver.ops.lookup import LookupOps
from benchserver.refserver.ops.mapped import MappedOps
from benchserver.refserver.registry import Registry
from benchserver.refserver.sessions import Sessions
from benchserver.refserver.store.arena import open_private
from benchserver.refserver.store.cache import Cache
from benchserver.refserver.store.segments import create_segment, unlink_segment
from benchserver.refserver.tiers.backing import Backing
from benchserver.refserver.tiers.tier import Tier
from protocol import codec
from protocol.dialects import V056
from protocol.handles import CPU_EVENT_STUB, CpuShmHandle, contiguous_strides
from protocol.keys import CacheKey
from protocol.messages import VOID, Incoming, TransferResult
from protocol.ops import Op

CHUNK, BS = 4, 2
SHAPE = (2, 16, BS, 1, 4)
"""Planes, blocks, slots, heads, elements; two layers."""

L1_BYTES = 1 << 20
FROM, TO = [1, 2, 3, 4], [9, 12, 7, 5]
DONE = TransferResult(event=CPU_EVENT_STUB, ok=True)
UID, OP = b"\x07", b"\x01"
Pending = list[Coroutine[Any, Any, None]]


@dataclass
class Road:
    """Where replies go in these tests."""

    tamper: Tamper | None = None
    sent: list[tuple[bytes, ...]] = field(default_factory=list)

    def tamper_with(self, tamper: Tamper | None) -> None:
        self.tamper = tamper

    async def deliver(self, op: Op, args: Sequence[Any], result: Any) -> list[tuple[bytes, ...]]:
        """Return what leaves the server in place of one reply."""
        self.sent.clear()
        request = Incoming(uid=UID, op_frame=OP, op=op, args=args)
        frames = codec.encode_reply(V056, request, result)
        if self.tamper is None:
            return [frames]
        await self.tamper(request, frames, self._send)
        return list(self.sent)

    async def _send(self, frames: tuple[bytes, ...]) -> None:
        self.sent.append(frames)


@dataclass
class Stage:
    """A server without sockets, and two registered ranks of one client."""

    core: Core
    handlers: dict[Op, Handler]
    board: Switchboard
    road: Road
    later: Pending
    pages: list[list[Any]]
    lines: list[str] = field(default_factory=list)

    def switch(self, *texts: str) -> None:
        self.board.replace(texts)

    def fired(self) -> list[int]:
        return [fault["fired"] for fault in self.board.document()["faults"]]

    async def call(self, op: Op, *args: Any) -> Any:
        return await self.handlers[op](args)

    async def store(self, name: str, rank: int = 0, **changes: Any) -> Any:
        return await self.call(Op.STORE, key(name, rank, **changes), rank, [FROM], CPU_EVENT_STUB)

    async def retrieve(self, name: str, rank: int = 0, skip: int = 0) -> Any:
        args = (key(name, rank), rank, [TO], CPU_EVENT_STUB, skip)
        return await self.call(Op.RETRIEVE, *args)

    async def lookup(self, name: str, **changes: Any) -> Any:
        await self.call(Op.LOOKUP, key(name, None, **changes), 2)
        return await self.call(Op.QUERY_PREFETCH_STATUS, name)

    async def round_trip(self, name: str = "a") -> None:
        """Store and retrieve on both ranks."""
        for rank in range(2):
            assert await self.store(name, rank) == DONE
        assert await self.lookup(name) == 2
        for rank in range(2):
            assert await self.retrieve(name, rank) == DONE

    def restored(self, rank: int = 0) -> Any:
        """Return which elements of the destination equal the source's: [layer][...]."""
        return np.stack([page[:, TO] == page[:, FROM] for page in self.pages[rank]])

    def locks(self) -> int:
        return self.core.cache.counts(self.core.clock.now_ns()).read_locked


def key(name: str, rank: int | None, **changes: Any) -> CacheKey:
    defaults: dict[str, Any] = {
        "model_name": "m",
        "world_size": 2,
        "worker_id": rank,
        "token_ids": [ord(c) for c in (name * 8)[: 2 * CHUNK]],
        "start": 0,
        "end": 2 * CHUNK,
        "request_id": name,
    }
    return CacheKey(**{**defaults, **changes})


@contextmanager
def client_memory(seed: int) -> Iterator[tuple[list[CpuShmHandle], list[Any]]]:
    """Yield the tensors of one rank, with random content, in one segment."""
    name = f"refserver-faults-{os.getpid()}-{os.urandom(4).hex()}"
    count, size = 2, int(np.prod(SHAPE))
    descriptor = create_segment(name)
    os.truncate(descriptor, 2 * size * count)
    memory = mmap.mmap(descriptor, 2 * size * count)
    os.close(descriptor)
    whole = np.frombuffer(memory, dtype=np.uint16)
    whole[:] = np.random.default_rng(seed).integers(0, 1 << 16, whole.size)
    handles = [
        CpuShmHandle(
            shm_name=f"/{name}",
            nbytes=2 * size * count,
            dtype="float16",
            shape=SHAPE,
            stride=contiguous_strides(SHAPE),
            storage_offset=layer * size,
        )
        for layer in range(count)
    ]
    pages = [whole[i * size : (i + 1) * size].reshape(SHAPE) for i in range(count)]
    try:
        yield handles, pages
    finally:
        unlink_segment(name)
        pages.clear()


@contextmanager
def empty_stage(tiers: Sequence[Tier] = (), clock: VirtualClock | None = None) -> Iterator[Stage]:
    clock = clock or VirtualClock()
    lines: list[str] = []
    journal = Journal(clock, lines.append)
    arena, copier = open_private(L1_BYTES), Copier()
    cache = Cache(arena.nbytes)
    backing = Backing(tiers, cache=cache, arena=arena, clock=clock, journal=journal)
    core = Core(
        config=ServerConfig(l1_bytes=L1_BYTES, chunk_size=CHUNK),
        clock=clock,
        journal=journal,
        arena=arena,
        cache=cache,
        sessions=Sessions(),
        registry=Registry(),
        copier=copier,
        backing=backing if tiers else None,
    )
    later = Pending()
    groups = (LookupOps(core), MappedOps(core, later.append), EngineOps(core))
    handlers = {op: handler for group in groups for op, handler in group.table().items()}
    road = Road()
    board = Switchboard(core, handlers, road, later.append)
    try:
        yield Stage(core, handlers, board, road, later, [], lines)
    finally:
        for coroutine in later:
            coroutine.close()
        core.cuda.end_threads()
        core.registry.close()
        core.cuda.close()
        copier.close()
        arena.close()


@asynccontextmanager
async def staged(
    tiers: Sequence[Tier] = (), clock: VirtualClock | None = None
) -> AsyncIterator[Stage]:
    """A stage with two registered ranks, and with L2 if there are tiers."""
    with empty_stage(tiers, clock) as stage, client_memory(1) as first, client_memory(2) as second:
        stage.pages = [first[1], second[1]]
        for rank, handles in enumerate((first[0], second[0])):
            hints = {"kv_layout": "NHD"}
            args: tuple[Any, ...] = (rank, handles, "m", 2, "vllm", hints, [])
            assert await stage.call(Op.REGISTER_KV_CACHE, *args) is VOID
        yield stage

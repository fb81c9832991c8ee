"""engine_driven: the worker copies chunks itself, PREPARE then COMMIT.

Over the server's shared-memory L1 pool where it has one, else as tensors inside the messages.
One KV layer group only.  Slots come from a peer: each is checked against the pool's bounds and
the chunk object's shape before a byte is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np
import numpy.typing as npt

from benchserver.client.connection import Connection
from benchserver.client.serverpool import ServerPool
from benchserver.client.transfer import Moved, RefusedError
from benchserver.clock import Clock
from benchserver.kv.blocks import Window
from benchserver.kv.pool import ChunkCopier
from benchserver.tasks import in_thread
from protocol.errors import RemoteProtocolError
from protocol.inline.tensor import InlineTensor
from protocol.keys import CacheKey
from protocol.messages import VOID, PoolInfo, RetrievePlan, Slot, StorePlan
from protocol.ops import Op
from shapespec import GroupSpec, ShapeSpec, chunk_bytes, hidden_size

U8 = npt.NDArray[np.uint8]


class EngineMode:
    """One worker in engine_driven mode."""

    def __init__(
        self,
        rpc: Connection,
        pool: ChunkCopier,
        spec: ShapeSpec,
        *,
        instance_id: int,
        model_name: str,
        world_size: int,
        chunk_tokens: int,
        clock: Clock,
        executor: Executor,
    ) -> None:
        self._rpc = rpc
        self._pool = pool
        self._group: GroupSpec = spec.groups[0]
        self._instance_id = instance_id
        self._model_name = model_name
        self._world_size = world_size
        self._chunk_tokens = chunk_tokens
        self._object_bytes = chunk_bytes(spec, chunk_tokens)
        self._clock = clock
        self._executor = executor
        self._server_pool: ServerPool | None = None
        self.transport = ""

    @property
    def _object_shape(self) -> tuple[int, ...]:
        """Return a chunk object's shape: [K/V][layer][token][hidden], or without K/V for MLA."""
        shape = (self._group.layers, self._chunk_tokens, hidden_size(self._group))
        return shape if self._group.is_mla else (2, *shape)

    async def register(self) -> None:
        """Register, and map the server's pool if it has one."""
        registration: dict[str, Any] = {
            "instance_id": self._instance_id,
            "model_name": self._model_name,
            "world_size": self._world_size,
            "block_size": self._group.block_size,
            "num_layers": self._group.layers,
            "hidden_dim_size": hidden_size(self._group),
            "dtype_str": self._group.dtype.name,
            "use_mla": self._group.is_mla,
            "num_physical_slots": self._chunk_tokens,
        }
        reply = await self._rpc.call(Op.REGISTER_ENGINE_DRIVEN, registration)
        # 0.4.6 answers without a result: it has no shared pool.
        info: PoolInfo | None = None if reply.result is VOID else reply.result
        if info is not None and info.shm_name:
            self._server_pool = ServerPool(info)
        self.transport = "inline" if self._server_pool is None else "shm"

    async def unregister(self, *, timeout_ns: int) -> None:
        """Take the registration back."""
        own = Op.UNREGISTER_ENGINE_DRIVEN in self._rpc.dialect.ops
        op = Op.UNREGISTER_ENGINE_DRIVEN if own else Op.UNREGISTER_KV_CACHE
        await self._rpc.call(op, self._instance_id, timeout_ns=timeout_ns)

    async def close(self) -> None:
        """Unmap the server's pool."""
        if self._server_pool is not None:
            self._server_pool.close()
            self._server_pool = None

    async def store(self, key: CacheKey, window: Window) -> Moved:
        """PREPARE_STORE, copy the chunks that the server still wants, COMMIT_STORE."""
        began_ns = self._clock.now_ns()
        reply = await self._rpc.call(Op.PREPARE_STORE, key, self._instance_id)
        plan: StorePlan = reply.result
        tables = self._tables(window)
        data = b""
        if plan.inline:
            indices: Sequence[int] = range(len(tables))
            data = await in_thread(self._executor, lambda: self._pack_inline(tables))
        else:
            indices = self._checked_indices(plan, len(tables))
            await in_thread(self._executor, lambda: self._write_slots(plan.slots, indices, tables))
        if plan.inline or plan.slots:
            committed = await self._rpc.call(Op.COMMIT_STORE, key, self._instance_id, data)
            if not committed.result:
                raise RefusedError("COMMIT_STORE answered False")
        return self._moved(began_ns, len(indices))

    async def retrieve(self, key: CacheKey, window: Window, *, skip_tokens: int = 0) -> Moved:
        """PREPARE_RETRIEVE, copy the chunks out, COMMIT_RETRIEVE (which gives the locks back)."""
        if skip_tokens:
            raise ValueError("engine_driven: the client copies, no server can be told to skip")
        began_ns = self._clock.now_ns()
        reply = await self._rpc.call(Op.PREPARE_RETRIEVE, key, self._instance_id)
        plan: RetrievePlan = reply.result
        if not plan.success:
            raise RefusedError("PREPARE_RETRIEVE answered success=false")
        tables = self._tables(window)
        try:
            await in_thread(self._executor, lambda: self._read_plan(plan, tables))
        except RemoteProtocolError:
            # The plan was bad, but the server holds its locks until we commit.
            await self._rpc.call(Op.COMMIT_RETRIEVE, key, self._instance_id)
            raise
        committed = await self._rpc.call(Op.COMMIT_RETRIEVE, key, self._instance_id)
        if not committed.result:
            raise RefusedError("COMMIT_RETRIEVE answered False")
        return self._moved(began_ns, len(tables))

    def _moved(self, began_ns: int, chunks: int) -> Moved:
        """Return a transfer that ends now: our own copies have landed when they return."""
        now_ns = self._clock.now_ns()
        return Moved(began_ns=began_ns, replied_ns=now_ns, landed_ns=now_ns, chunks=chunks)

    def _tables(self, window: Window) -> list[tuple[int, ...]]:
        """Return the block table of each chunk."""
        return window.chunk_tables(self._chunk_tokens // self._group.block_size)

    @staticmethod
    def _checked_indices(plan: StorePlan, chunks: int) -> tuple[int, ...]:
        indices = plan.chunk_indices
        if len(set(indices)) != len(indices) or not all(0 <= i < chunks for i in indices):
            raise RemoteProtocolError(
                f"PREPARE_STORE: chunk indices {list(indices)[:16]} for a range of {chunks} chunks"
            )
        return indices

    def _slot_memory(self, slot: Slot) -> U8:
        if self._server_pool is None:
            raise RemoteProtocolError("the server named slots but no pool at registration")
        if slot.shape != self._object_shape or slot.dtype != self._group.dtype.name:
            raise RemoteProtocolError(
                f"slot of shape {slot.shape} {slot.dtype[:20]!a}, expected {self._object_shape} "
                f"{self._group.dtype.name}"
            )
        return self._server_pool.slot(slot, self._object_bytes)

    def _write_slots(
        self, slots: Sequence[Slot], indices: Sequence[int], tables: Sequence[Sequence[int]]
    ) -> None:
        for slot, index in zip(slots, indices, strict=True):
            self._pool.gather_chunk(0, tables[index], self._slot_memory(slot))

    def _pack_inline(self, tables: Sequence[Sequence[int]]) -> bytes:
        tensors: list[InlineTensor] = []
        for table in tables:
            data = np.empty(self._object_bytes, dtype=np.uint8)
            self._pool.gather_chunk(0, table, data)
            tensors.append(
                InlineTensor(dtype=self._group.dtype.name, shape=self._object_shape, data=data.data)
            )
        return self._rpc.dialect.inline.encode(tensors)

    def _read_plan(self, plan: RetrievePlan, tables: Sequence[Sequence[int]]) -> None:
        chunks = [self._slot_memory(slot) for slot in plan.slots] or self._unpack_inline(plan.data)
        if len(chunks) != len(tables):
            raise RemoteProtocolError(
                f"PREPARE_RETRIEVE: {len(chunks)} chunks came, {len(tables)} were asked for"
            )
        for table, data in zip(tables, chunks, strict=True):
            self._pool.scatter_chunk(0, table, data)

    def _unpack_inline(self, stream: bytes) -> list[U8]:
        tensors = self._rpc.dialect.inline.decode(stream)
        for tensor in tensors:
            if tensor.shape != self._object_shape or tensor.dtype != self._group.dtype.name:
                raise RemoteProtocolError(
                    f"inline tensor of shape {tensor.shape} {tensor.dtype}, expected "
                    f"{self._object_shape} {self._group.dtype.name}"
                )
        return [np.frombuffer(tensor.data, dtype=np.uint8) for tensor in tensors]

"""lmcache_driven: the server maps the worker's segment and copies pages itself.

The segment has a name only while the server maps it: measured safe on 0.5.6, and nothing is left
in /dev/shm even after SIGKILL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchserver.client.rpc import RpcClient
from benchserver.client.transfer import Moved, RefusedError
from benchserver.clock import NS_PER_S
from benchserver.kv.blocks import Window
from benchserver.kv.host import HostPool
from benchserver.kv.segment import SharedSegment
from protocol.handles import CPU_EVENT_STUB
from protocol.keys import CacheKey
from protocol.messages import Reply, TransferResult
from protocol.ops import Op
from shapespec import ShapeSpec, layer_indices

ENGINE_TYPE = "vllm"

_UNANSWERED_NS = NS_PER_S // 4
"""0.4.7 on CPU drops the registration at once, and then fails to say so."""


def group_infos(spec: ShapeSpec) -> list[dict[str, Any]]:
    """Return `engine_group_infos`: one map a KV layer group, in layer order (0.5.5 fields)."""
    return [
        {
            "engine_group_id": index,
            "layer_indices": list(layers),
            "tokens_per_block": spec.block_size,
            "sw_size_tokens": -1,
            "extra_object_group_tag": 0,
            "recurrent_state": False,
        }
        for index, layers in enumerate(layer_indices(spec))
    ]


class HandleMode:
    """One worker in lmcache_driven mode."""

    def __init__(
        self,
        rpc: RpcClient,
        pool: HostPool,
        segment: SharedSegment,
        spec: ShapeSpec,
        *,
        instance_id: int,
        model_name: str,
        world_size: int,
        chunk_tokens: int,
        shm_name: str,
    ) -> None:
        self._rpc = rpc
        self._pool = pool
        self._segment = segment
        self._spec = spec
        self._instance_id = instance_id
        self._model_name = model_name
        self._world_size = world_size
        self._chunk_tokens = chunk_tokens
        self._shm_name = shm_name
        self.transport = ""

    async def register(self) -> None:
        """Name the segment, let the server map it, and take the name away again."""
        dialect = self._rpc.dialect
        # A CPU server that takes every tensor for HND is told what it believes anyway.
        hnd = dialect.cpu_reads_hnd
        values = {
            "instance_id": self._instance_id,
            "kv_cache": self._pool.handles(self._shm_name, hnd=hnd),
            "model_name": self._model_name,
            "world_size": self._world_size,
            "engine_type": ENGINE_TYPE,
            "layout_hints": {"kv_layout": "HND" if hnd else "NHD"},
            "engine_group_infos": group_infos(self._spec),
        }
        self._segment.link(self._shm_name)
        try:
            arguments = dialect.arguments(Op.REGISTER_KV_CACHE, values)
            await self._rpc.call(Op.REGISTER_KV_CACHE, *arguments)
        finally:
            self._segment.unlink()
        self.transport = "handle"

    async def unregister(self, *, timeout_ns: int) -> None:
        """Let the server unmap the segment; where that is never answered, it is only said."""
        if not self._rpc.dialect.unregister_answered:
            timeout_ns = min(timeout_ns, _UNANSWERED_NS)
        await self._rpc.call(Op.UNREGISTER_KV_CACHE, self._instance_id, timeout_ns=timeout_ns)

    async def store(self, key: CacheKey, window: Window) -> Moved:
        """STORE; on a CPU server the reply means that our pages have been read."""
        tables = self._tables(window.block_ids)
        reply = await self._rpc.call(Op.STORE, key, self._instance_id, tables, CPU_EVENT_STUB)
        return self._moved(reply, key)

    async def retrieve(self, key: CacheKey, window: Window, *, skip_tokens: int = 0) -> Moved:
        """RETRIEVE; on a CPU server the data has landed when the reply comes.

        The block table is whole even if the server skips its first blocks (0.5.6).
        """
        tables = self._tables(window.block_ids)
        reply = await self._rpc.call(
            Op.RETRIEVE, key, self._instance_id, tables, CPU_EVENT_STUB, skip_tokens
        )
        return self._moved(reply, key)

    async def close(self) -> None:
        """Nothing of its own is open: the pool belongs to the worker."""

    def _tables(self, block_ids: Sequence[int]) -> list[list[int]]:
        """Return one block table a group; every group uses the same blocks."""
        return [list(block_ids) for _ in self._spec.groups]

    def _moved(self, reply: Reply, key: CacheKey) -> Moved:
        result: TransferResult = reply.result
        if not result.ok:
            raise RefusedError(f"{reply.op.name} answered False")
        chunks = (key.end - key.start) // self._chunk_tokens
        return Moved(latency_ns=reply.latency_ns, chunks=chunks)

"""lmcache_driven: the server maps the worker's pool and copies pages itself.

The pool is exported only while the server maps it: a segment on the host then has a name (measured
safe on 0.5.6, and nothing is left in /dev/shm even after SIGKILL).

On the host a reply means that the data has landed.  On a GPU it comes before: each request carries
an event behind our own work on the blocks, each reply one of the server's, and nothing else
happens to the blocks, nor is a latency taken, before that one has completed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

from benchserver.client.connection import CallFailedError, Connection, NoAnswerError
from benchserver.client.transfer import Moved, RefusedError
from benchserver.clock import NS_PER_S, Clock
from benchserver.errors import one_line
from benchserver.kv.blocks import Window
from benchserver.kv.pool import EventError, SharedMemory
from benchserver.tasks import in_thread
from protocol.handles import EVENT_HANDLE_BYTES
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


class MappedMode:
    """One worker in lmcache_driven mode."""

    def __init__(
        self,
        rpc: Connection,
        pool: SharedMemory,
        spec: ShapeSpec,
        *,
        instance_id: int,
        model_name: str,
        world_size: int,
        chunk_tokens: int,
        timeout_ns: int,
        clock: Clock,
        executor: Executor,
    ) -> None:
        """`timeout_ns` bounds the wait for the event of a reply, after the reply."""
        self._rpc = rpc
        self._pool = pool
        self._spec = spec
        self._instance_id = instance_id
        self._model_name = model_name
        self._world_size = world_size
        self._chunk_tokens = chunk_tokens
        self._timeout_ns = timeout_ns
        self._clock = clock
        self._executor = executor
        self.transport = ""

    async def register(self) -> None:
        """Export the pool, let the server map it, and end the export."""
        dialect = self._rpc.dialect
        # A CPU server that reads every tensor as HND is told HND.
        hnd = dialect.cpu_reads_hnd
        with self._pool.exported(hnd=hnd) as handles:
            values = {
                "instance_id": self._instance_id,
                "kv_cache": list(handles),
                "model_name": self._model_name,
                "world_size": self._world_size,
                "engine_type": ENGINE_TYPE,
                "layout_hints": {"kv_layout": "HND" if hnd else "NHD"},
                "engine_group_infos": group_infos(self._spec),
            }
            arguments = dialect.arguments(Op.REGISTER_KV_CACHE, values)
            await self._rpc.call(Op.REGISTER_KV_CACHE, *arguments)
        self.transport = "handle"

    async def unregister(self, *, timeout_ns: int) -> None:
        """Let the server unmap the pool; if this release never answers, do not wait."""
        call = partial(self._rpc.call, Op.UNREGISTER_KV_CACHE, self._instance_id)
        if self._rpc.dialect.unregister_answered:
            await call(timeout_ns=timeout_ns)
            return
        with contextlib.suppress(NoAnswerError):
            await call(timeout_ns=min(timeout_ns, _UNANSWERED_NS))

    async def store(self, key: CacheKey, window: Window) -> Moved:
        """STORE; when it returns our pages have been read."""
        return await self._transfer(Op.STORE, key, window)

    async def retrieve(self, key: CacheKey, window: Window, *, skip_tokens: int = 0) -> Moved:
        """RETRIEVE; when it returns the data has landed.

        The block table is whole even if the server skips its first blocks (0.5.6).
        """
        return await self._transfer(Op.RETRIEVE, key, window, skip_tokens)

    async def close(self) -> None:
        """Nothing of its own is open: the pool belongs to the worker."""

    def _tables(self, block_ids: Sequence[int]) -> list[list[int]]:
        """Return one block table a group; every group uses the same blocks."""
        return [list(block_ids) for _ in self._spec.groups]

    async def _transfer(self, op: Op, key: CacheKey, window: Window, *more: int) -> Moved:
        """Send a request that moves data, and return once the data has landed."""
        tables = self._tables(window.block_ids)
        event = await self._event()
        began_ns = self._clock.now_ns()
        reply = await self._rpc.call(op, key, self._instance_id, tables, event, *more)
        result: TransferResult = reply.result
        if not result.ok:
            raise RefusedError(f"{op.name} answered False")
        replied_ns = landed_ns = began_ns + reply.latency_ns
        if self._pool.asynchronous:
            await self._land(reply, result.event)
            landed_ns = max(replied_ns, self._clock.now_ns())
        chunks = (key.end - key.start) // self._chunk_tokens
        return Moved(began_ns=began_ns, replied_ns=replied_ns, landed_ns=landed_ns, chunks=chunks)

    async def _event(self) -> bytes:
        """Return the event that a request carries; on the host, at once and in this thread."""
        if not self._pool.asynchronous:
            return self._pool.record_event()
        return await in_thread(self._executor, self._pool.record_event)

    async def _land(self, reply: Reply, event: bytes) -> None:
        """Wait until the data of a reply that says True has landed.

        Raises RefusedError where the reply holds no event, CallFailedError where its event does
        not tell.
        """
        if len(event) != EVENT_HANDLE_BYTES:
            raise RefusedError(
                f"replied True, but with an event of {len(event)} bytes, expected "
                f"{EVENT_HANDLE_BYTES}: a client cannot know when the data lands"
            )
        wait = partial(self._pool.wait_event, event, timeout_ns=self._timeout_ns)
        try:
            await in_thread(self._executor, wait)
        except EventError as error:
            reason = f"replied True, but when its data lands is unknown: {one_line(error)}"
            raise CallFailedError(reply.op, reason) from error

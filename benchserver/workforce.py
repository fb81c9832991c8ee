"""All workers of a run: their memory, their registrations, and the end of both."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial

from benchserver.client.engine_mode import EngineMode
from benchserver.client.handle_mode import HandleMode
from benchserver.client.rpc import CallFailedError, RpcClient
from benchserver.client.transfer import TransferMode
from benchserver.client.worker import Worker, instance_id
from benchserver.clock import NS_PER_S, Clock
from benchserver.config import RunConfig, TransferChoice
from benchserver.errors import FatalError
from benchserver.kv.blocks import PLACES
from benchserver.kv.host import HostPool, group_patterns, place_tensors
from benchserver.kv.pattern import GroupPattern, content_seed
from benchserver.kv.segment import SharedSegment, require_room, segment_name
from benchserver.tasks import gather_all, in_thread

_UNREGISTER_WITHIN_S = 2.0
"""A server that took the registration answers at once; one that did not never will."""


class Workforce:
    """The workers; whatever `build` and `register` began, `unregister` and `close` end."""

    def __init__(
        self,
        config: RunConfig,
        *,
        choice: TransferChoice,
        served: str,
        chunk_tokens: int,
        nonce: bytes,
        clock: Clock,
        executor: Executor,
        cancel: threading.Event,
    ) -> None:
        """`served` is the server's transfer mode by its own word, or "" if it is not known."""
        self._config = config
        self._choice = choice
        self._served = served
        self._chunk_tokens = chunk_tokens
        self._nonce = nonce
        self._clock = clock
        self._executor = executor
        self._cancel = cancel
        self._segments: list[SharedSegment] = []
        self._registered: list[Worker] = []
        self._unregister_ns = int(min(config.timeout_s, _UNREGISTER_WITHIN_S) * NS_PER_S)
        self.workers: list[Worker] = []

    async def build(self, open_rpc: Callable[[int], RpcClient]) -> None:
        """Allocate every rank's pool, before anything is registered.

        Raises FatalError if the memory for all of them is not there.
        """
        config = self._config
        require_room(config.tp_size * place_tensors(config.spec)[1])
        patterns = group_patterns(content_seed(config.seed, config.cache_salt), config.spec)
        for rank in range(config.tp_size):
            self.workers.append(await self._make_worker(rank, open_rpc(rank), patterns))
        await gather_all(in_thread(self._executor, partial(self._touch, w)) for w in self.workers)

    async def register(self) -> None:
        """Register every worker; FatalError if the server does not answer one."""
        await gather_all(self._register(worker) for worker in self.workers)

    async def unregister(self) -> None:
        """Take back whatever may be registered; a server that does not answer is left alone."""
        await gather_all(self._unregister(worker) for worker in self._registered)

    @property
    def transports(self) -> set[str]:
        """Return what really carries the bytes of the registered workers."""
        return {worker.mode.transport for worker in self._registered}

    @property
    def instances(self) -> frozenset[int]:
        """Return the instance ids of all workers."""
        return frozenset(worker.instance_id for worker in self.workers)

    def release(self) -> None:
        """Take our names out of /dev/shm and free the memory, at once."""
        for segment in self._segments:
            segment.release()

    async def close(self) -> None:
        """Give all local resources back."""
        for worker in self.workers:
            await worker.mode.close()
            worker.pool.close()
        for segment in self._segments:
            segment.close()

    async def _make_worker(
        self, rank: int, rpc: RpcClient, patterns: Sequence[GroupPattern]
    ) -> Worker:
        config = self._config
        _, nbytes = place_tensors(config.spec)
        segment = await in_thread(self._executor, partial(SharedSegment, nbytes, self._cancel))
        self._segments.append(segment)
        kv_rank = 0 if config.is_mla else rank
        pool = HostPool(
            segment,
            config.spec,
            patterns,
            content_rank=kv_rank,
            ranks=config.tp_size,
            blocks_per_chunk=self._chunk_tokens // config.spec.block_size,
            cancel=self._cancel,
        )
        instance = instance_id(int.from_bytes(self._nonce, "big"), rank)
        return Worker(
            rank=rank,
            kv_rank=kv_rank,
            instance_id=instance,
            rpc=rpc,
            pool=pool,
            mode=self._make_mode(rank, instance, rpc, pool, segment),
        )

    def _make_mode(
        self, rank: int, instance: int, rpc: RpcClient, pool: HostPool, segment: SharedSegment
    ) -> TransferMode:
        config = self._config
        if self._choice is TransferChoice.ENGINE_DRIVEN:
            return EngineMode(
                rpc,
                pool,
                config.spec,
                instance_id=instance,
                model_name=config.model_name,
                world_size=config.world_size,
                chunk_tokens=self._chunk_tokens,
                clock=self._clock,
                executor=self._executor,
            )
        return HandleMode(
            rpc,
            pool,
            segment,
            config.spec,
            instance_id=instance,
            model_name=config.model_name,
            world_size=config.world_size,
            chunk_tokens=self._chunk_tokens,
            shm_name=segment_name(self._nonce.hex(), rank),
        )

    def _touch(self, worker: Worker) -> None:
        """Write the blocks of the first turns once, so that no sequence pays for page faults."""
        config = self._config
        end = config.start + PLACES if config.end is None else config.end
        for turn in range(config.start, min(end, config.start + PLACES)):
            plan = config.block_plan(self._chunk_tokens, turn=turn, rank=worker.rank)
            worker.pool.poison(plan.source)
            worker.pool.poison(plan.destination)

    async def _register(self, worker: Worker) -> None:
        self._registered.append(worker)  # from now on it may be, so it is taken back at the end
        try:
            await worker.mode.register()
        except CallFailedError as error:
            mode = (
                ""
                if self._served
                else f"the server does not serve --transfer-mode {self._choice.value} (its flag "
                "--supported-transfer-mode; auto serves both), or "
            )
            raise FatalError(
                f"rank {worker.rank}: {error}; {mode}it cannot map our memory (it must run on this "
                "host, as this user, with this /dev/shm) or refuses this KV layout: see its log"
            ) from error

    async def _unregister(self, worker: Worker) -> None:
        with contextlib.suppress(CallFailedError):
            await worker.mode.unregister(timeout_ns=self._unregister_ns)

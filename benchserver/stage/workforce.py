"""All workers of a run: their memory, their registrations, and the end of both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from itertools import product

from benchserver.client.connection import CallFailedError, Connection
from benchserver.client.engine import EngineMode
from benchserver.client.mapped import MappedMode
from benchserver.client.transfer import TransferMode, dtype_hint
from benchserver.client.worker import Worker, instance_id
from benchserver.clock import NS_PER_S, Clock
from benchserver.config.engine import Engine
from benchserver.errors import FatalError, WorkCancelledError, one_line
from benchserver.geometry import Geometry
from benchserver.history import worker_label
from benchserver.kv.blocks import PLACES, BlockPlan
from benchserver.kv.evidence import EvidenceKind
from benchserver.kv.placement import RankDevice
from benchserver.kv.pool import KvPool
from benchserver.kv.verify import verify
from benchserver.options.engine import TransferChoice
from benchserver.stage.pools import Pools, kv_rank
from benchserver.tasks import gather_all, in_thread
from protocol.errors import LocalProtocolError


class UnregisteredError(FatalError):
    """A registration was not answered well; `seen` is that alone, without what may explain it."""

    def __init__(self, seen: str, hint: str) -> None:
        super().__init__(f"{seen}; {hint}")
        self.seen = seen


class Workforce:
    """The workers; whatever `build` and `register` began, `unregister` and `close` end."""

    def __init__(
        self,
        engine: Engine,
        *,
        clients: int,
        timeout_s: float,
        choice: TransferChoice,
        served: str,
        geometry: Geometry,
        nonce: bytes,
        clock: Clock,
        executor: Executor,
        pools: Pools,
    ) -> None:
        """Make workers of `clients` engines.

        `served` is the server's transfer mode by its own word, or "" if it is not known.
        """
        self._engine = engine
        self._clients = clients
        self._timeout_s = timeout_s
        self._choice = choice
        self._served = served
        self._geometry = geometry
        self._nonce = nonce
        self._clock = clock
        self._executor = executor
        self._source = pools
        self._pools: list[KvPool] = []
        self._closed = False
        self._pools_lock = threading.Lock()
        """For `_closed` and additions to `_pools`, which threads make."""
        self._registered: list[Worker] = []
        self.workers: list[Worker] = []

    async def build(
        self, open_rpc: Callable[[str], Connection], turns: range, leases: int = 1
    ) -> None:
        """Allocate every worker's pool, before anything is registered, and touch its first blocks.

        Those are the blocks of `turns` in each of so many leases.  `open_rpc` opens the connection
        of a worker, by what lines call it.  Raises FatalError if the memory for all of them is not
        there.
        """
        await in_thread(self._executor, self._source.require)
        for number in range(self._clients * self._engine.tp_size):
            pool = await in_thread(self._executor, partial(self._add_pool, number))
            self.workers.append(self._make_worker(number, open_rpc, pool))
        await gather_all(
            in_thread(self._executor, partial(self._touch, w, turns, leases)) for w in self.workers
        )

    async def renew(
        self, open_rpc: Callable[[str], Connection], turns: range, leases: int = 1
    ) -> None:
        """Give every worker a new connection, and no registration, for a server that was met again.

        A pool on a GPU stays as it is; one on the host is made anew, since the system gives a
        segment a name only once.  The rest is as `build` says.
        """
        old, self.workers = self.workers, []
        self._registered.clear()
        for number, worker in enumerate(old):
            await worker.mode.close()
            pool = (
                worker.pool if worker.pool.asynchronous else await self._exchanged(worker, number)
            )
            self.workers.append(self._make_worker(number, open_rpc, pool))
        await gather_all(
            in_thread(self._executor, partial(self._touch, w, turns, leases)) for w in self.workers
        )

    async def _exchanged(self, worker: Worker, number: int) -> KvPool:
        """Return a new pool in place of a worker's, which is closed before: there is room once."""
        worker.pool.close()
        with self._pools_lock:
            self._pools.remove(worker.pool)
        return await in_thread(self._executor, partial(self._add_pool, number))

    def forget(self) -> None:
        """Take back no registration: the server that had them is gone."""
        self._registered.clear()

    async def register(self) -> None:
        """Register every worker; UnregisteredError if the server does not answer one."""
        await gather_all(self._register(worker) for worker in self.workers)

    async def unregister(self, *, timeout_ns: int) -> list[str]:
        """Take back whatever may be registered; return what came of it unless that is an answer."""
        timeout_ns = min(timeout_ns, int(self._timeout_s * NS_PER_S))
        done = await gather_all(self._unregister(worker, timeout_ns) for worker in self._registered)
        return [text for text in done if text]

    @property
    def devices(self) -> tuple[RankDevice, ...]:
        """Return each worker's GPU, once the pools are built; none on the host."""
        return tuple(self._source.devices)

    @property
    def slow_kernels(self) -> str:
        """Return why content on GPUs is not written and compared by compiled kernels, or ""."""
        return self._source.slow_kernels

    @property
    def transports(self) -> set[str]:
        """Return what really carries the bytes of the registered workers."""
        return {worker.mode.transport for worker in self._registered}

    @property
    def instances(self) -> frozenset[int]:
        """Return the instance ids of all workers."""
        return frozenset(worker.instance_id for worker in self.workers)

    def release(self) -> None:
        """Take our names out of /dev/shm and free the memory, at once; for handlers of signals."""
        for pool in list(self._pools):
            pool.release()

    async def close(self, within_s: float) -> None:
        """Give all local resources back; a device that does not answer is waited for so long."""
        for worker in self.workers:
            await worker.mode.close()
        with self._pools_lock:
            self._closed = True
        closing = []
        for pool in self._pools:
            if pool.asynchronous:
                closing.append(asyncio.ensure_future(in_thread(self._executor, pool.close)))
            else:
                pool.close()
        if closing:
            done, _ = await asyncio.wait(closing, timeout=within_s)
            for closed in done:
                closed.result()

    def _add_pool(self, number: int) -> KvPool:
        """Make a worker's pool, and keep it in mind; blocks.

        If the run was cancelled meanwhile, nobody waits for it any more: close it here.
        """
        pool = self._source.make(number)
        with self._pools_lock:
            if not self._closed:
                self._pools.append(pool)
                return pool
        pool.close()
        raise WorkCancelledError

    def _make_worker(
        self, number: int, open_rpc: Callable[[str], Connection], pool: KvPool
    ) -> Worker:
        """Return the worker of that number: client after client, rank after rank."""
        client, rank = divmod(number, self._engine.tp_size)
        of_client = client if self._clients > 1 else None
        instance = instance_id(int.from_bytes(self._nonce, "big"), number)
        rpc = open_rpc(worker_label(of_client, rank))
        return Worker(
            rank=rank,
            client=of_client,
            kv_rank=kv_rank(self._engine, rank),
            instance_id=instance,
            rpc=rpc,
            pool=pool,
            mode=self._make_mode(instance, rpc, pool),
        )

    def _make_mode(self, instance: int, rpc: Connection, pool: KvPool) -> TransferMode:
        engine = self._engine
        if self._choice is TransferChoice.ENGINE_DRIVEN:
            return EngineMode(
                rpc,
                pool,
                engine.spec,
                instance_id=instance,
                model_name=engine.model_name,
                world_size=engine.world_size,
                chunk_tokens=self._geometry.chunk_tokens,
                clock=self._clock,
                executor=self._executor,
            )
        return MappedMode(
            rpc,
            pool,
            engine.spec,
            instance_id=instance,
            model_name=engine.model_name,
            world_size=engine.world_size,
            chunk_tokens=self._geometry.chunk_tokens,
            timeout_ns=int(self._timeout_s * NS_PER_S),
            clock=self._clock,
            executor=self._executor,
        )

    def _touch(self, worker: Worker, turns: range, leases: int) -> None:
        """Write the blocks of the first turns once, so that no request pays for page faults.

        On a GPU, compile all kernels by that, and see that they agree with each other.
        """
        for turn, lease in product(turns[:PLACES], range(leases)):
            plan = self._engine.block_plan(
                self._geometry, turn=turn, rank=worker.rank, lease=lease, leases=leases
            )
            if worker.pool.asynchronous:
                self._try_out(worker, plan)
            worker.pool.poison(plan.source)
            worker.pool.poison(plan.destination)

    def _try_out(self, worker: Worker, plan: BlockPlan) -> None:
        """Fill blocks and read them back; FatalError if they are not what was written."""
        digests = tuple(range(self._geometry.chunks))
        worker.pool.fill(plan.source, digests)
        seen = verify(worker.pool, plan.source, digests, ())
        if seen.kind is not EvidenceKind.MATCH:
            raise FatalError(
                f"{_name(worker)}: {seen.bad_pages} of {seen.pages} pages that were just "
                f"written to {self._where(worker)} read back otherwise; the device or its "
                "driver is at fault"
            )

    def _device(self, worker: Worker) -> RankDevice:
        return self._source.devices[self.workers.index(worker)]

    def _where(self, worker: Worker) -> str:
        device = self._device(worker)
        return f"cuda:{device.number} ({device.uuid})"

    async def _register(self, worker: Worker) -> None:
        self._registered.append(worker)  # from now on it may be, so it is taken back at the end
        try:
            await worker.mode.register()
        except LocalProtocolError as error:
            raise FatalError(
                f"{_name(worker)}: its registration cannot be sent: {one_line(error)}"
            ) from error
        except CallFailedError as error:
            mode = (
                ""
                if self._served
                else f"the server does not serve --transfer-mode {self._choice.value} (its flag "
                "--supported-transfer-mode; auto serves both), or "
            )
            raise UnregisteredError(
                f"{_name(worker)}: {error}",
                f"{mode}it cannot map our memory "
                f"({self._mapping_needs(worker)}) or refuses this KV layout: see its log"
                f"{dtype_hint(self._engine.spec)}",
            ) from error

    def _mapping_needs(self, worker: Worker) -> str:
        """Return what a server needs to map a worker's memory."""
        handles = self._choice is TransferChoice.LMCACHE_DRIVEN
        if self._engine.mode == "cpu" or not handles:
            return (
                "it must run on this host, as this user, and share our /dev/shm, as containers do "
                "with --ipc=host; from another host, use engine_driven mode"
            )
        container = (
            "; in a container, share our IPC namespace (--ipc=host), or use --cuda-ipc driver"
            if self._engine.cuda_ipc == "torch"
            else ""
        )
        uuid = self._device(worker).uuid
        return (
            f"it must run on this host, as this user, see the GPU {uuid}, and be able to open our "
            f"CUDA IPC handles{container}"
        )

    async def _unregister(self, worker: Worker, timeout_ns: int) -> str:
        try:
            await worker.mode.unregister(timeout_ns=timeout_ns)
        except CallFailedError as error:
            return f"{worker.place}: {one_line(error)}"
        return ""


def _name(worker: Worker) -> str:
    return worker.place.replace("=", " ")

"""Where the KV memory of all workers comes from: one pool each, on the host or on the GPUs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from benchserver.config.engine import Engine
from benchserver.geometry import Geometry
from benchserver.kv.content import PoolContent, group_patterns
from benchserver.kv.host.pool import HostPool
from benchserver.kv.host.segment import SharedSegment, require_room
from benchserver.kv.layout import place_tensors
from benchserver.kv.pattern import content_seed
from benchserver.kv.placement import RankDevice
from benchserver.kv.pool import KvPool
from benchserver.shmnames import segment_name

if TYPE_CHECKING:
    from benchserver.kv.gpu.lanes import Lanes


class Pools(Protocol):
    """Makes the pools of a run.  Methods block; they are called from worker threads."""

    @property
    def devices(self) -> Sequence[RankDevice]:
        """Return each worker's GPU, once `require` has returned; none on the host."""
        ...

    @property
    def slow_kernels(self) -> str:
        """Return why content on GPUs is not written and compared by compiled kernels, or ""."""
        ...

    def require(self) -> None:
        """Look whether all pools fit, before the first is made; FatalError if they do not."""
        ...

    def make(self, number: int) -> KvPool:
        """Return the pool of the worker of that number; FatalError if it cannot be made.

        Workers are numbered through: client after client, rank after rank.
        """
        ...


def make_pools(
    engine: Engine, geometry: Geometry, nonce: bytes, cancel: threading.Event, workers: int
) -> Pools:
    """Return the pools that so many workers of one kind of engine ask for."""
    if engine.mode == "gpu":
        return GpuPools(engine, geometry, cancel, workers)
    return HostPools(engine, geometry, nonce, cancel, workers)


def kv_rank(engine: Engine, rank: int) -> int:
    """Return whose objects a rank stores and retrieves: those of rank 0 for MLA."""
    return 0 if engine.is_mla else rank


def rank_contents(engine: Engine, geometry: Geometry) -> list[PoolContent]:
    """Return what each rank's pool must hold; all share their patterns."""
    root = content_seed(engine.seed, engine.cache_salt)
    patterns = group_patterns(root, engine.spec, geometry.blocks_per_chunk)
    return [
        PoolContent(
            spec=engine.spec,
            patterns=patterns,
            rank=kv_rank(engine, rank),
            ranks=engine.tp_size,
        )
        for rank in range(engine.tp_size)
    ]


class HostPools:
    """Pools in shared memory."""

    devices: Sequence[RankDevice] = ()
    slow_kernels = ""

    def __init__(
        self,
        engine: Engine,
        geometry: Geometry,
        nonce: bytes,
        cancel: threading.Event,
        workers: int,
    ) -> None:
        self._workers = workers
        self._nonce = nonce
        self._cancel = cancel
        self._nbytes = place_tensors(engine.spec)[1]
        self._contents = rank_contents(engine, geometry)

    def require(self) -> None:
        """Look whether all pools fit into this machine's memory and /dev/shm."""
        require_room(self._workers * self._nbytes)

    def make(self, number: int) -> KvPool:
        """Return a worker's pool, in a segment of its own."""
        return HostPool(
            SharedSegment(self._nbytes, self._cancel),
            self._contents[number % len(self._contents)],
            shm_name=segment_name(self._nonce.hex(), number),
            cancel=self._cancel,
        )


class GpuPools:
    """Pools in GPU memory, which share pinned buffers; the first call imports torch."""

    def __init__(
        self, engine: Engine, geometry: Geometry, cancel: threading.Event, workers: int
    ) -> None:
        self._engine = engine
        self._workers = workers
        self._cancel = cancel
        self._contents = rank_contents(engine, geometry)
        self._lanes: Lanes | None = None
        self.devices: list[RankDevice] = []
        self.slow_kernels = ""

    def require(self) -> None:
        """Choose each worker's GPU, and look whether its pool fits there."""
        # Loaded here: only GPU pools need torch, which takes seconds.
        from benchserver.kv.gpu.making import assign_devices

        self.devices = assign_devices(self._workers, place_tensors(self._engine.spec)[1])

    def make(self, number: int) -> KvPool:
        """Return a worker's pool on its GPU."""
        from benchserver.kv.gpu.lanes import Lanes
        from benchserver.kv.gpu.making import make_pool

        self._lanes = self._lanes or Lanes()
        pool = make_pool(
            self._contents[number % len(self._contents)],
            self.devices[number],
            ipc=self._engine.cuda_ipc,
            cancel=self._cancel,
            lanes=self._lanes,
        )
        self.slow_kernels = self.slow_kernels or pool.kernels_note
        return pool

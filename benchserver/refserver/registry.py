"""The registered instances of both modes, and the client memory that is mapped for them.

A client that truncates a segment it registered can kill this process by SIGBUS, as it can kill
the real server; nothing in POSIX shared memory prevents it.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from benchserver.refserver.gpu.instance import CudaInstance
from benchserver.refserver.pages.checksums import HashedLayer
from benchserver.refserver.pages.layout import KvLayout
from benchserver.refserver.pages.transfer import Pages, paged_view, tensor_over
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.store.arena import unmap
from benchserver.refserver.store.segments import open_segment
from benchserver.refserver.tenancy import Liveness, Patience, Tenancy
from protocol.dtypes import ITEM_BYTES
from protocol.handles import CpuShmHandle
from protocol.values import clip, is_int

T = TypeVar("T")

MAX_INSTANCES = 1024
"""A bench has a few dozen; each one maps memory."""

MAX_LAYERS = 4096
MAX_WORLD_SIZE = 4096
"""LOOKUP walks all ranks of a chunk; nobody has more."""

MAX_SEGMENT_NAME = 255
MAX_OBJECT_BYTES = 1 << 40
"""More than any chunk has; keeps the arithmetic of a hostile registration small."""


class MappedInstance:
    """A client whose KV tensors the server has mapped (lmcache_driven)."""

    def __init__(
        self,
        *,
        model_name: str,
        world_size: int,
        layout: KvLayout,
        handles: Sequence[CpuShmHandle],
        now_ns: int,
    ) -> None:
        self.model_name = model_name
        self.world_size = world_size
        self.layout = layout
        self.liveness = Liveness(last_seen_ns=now_ns)
        self.dtypes = tuple(handle.dtype for handle in handles)
        self._segments = _map_segments(handles)
        self._tensors = [tensor_over(self._segments[_plain(h.shm_name)], h) for h in handles]
        self._tenancy = Tenancy(self._unmap)

    def pages(self) -> list[Pages]:
        """Return every layer as [plane][block][slot][head][element]; drop it after use."""
        views = list(self._tensors)
        for group in self.layout.groups:
            for layer in group.layers:
                views[layer] = paged_view(self._tensors[layer], group.geometry)
        return views

    def hashed_layers(self) -> list[HashedLayer]:
        """Return every layer in its own order of axes; drop it after use."""
        columns = zip(self._tensors, self.layout.formats, self.dtypes, strict=True)
        return [HashedLayer(tensor=t, form=f, dtype=d) for t, f, d in columns]

    def order_after(self, event: bytes) -> None:
        """Do nothing: on the host, a client's request comes after its writes."""

    def read_blocks(self, layer: int, block_ids: Sequence[int]) -> Pages:
        """Return a copy of blocks as [plane][block][slot][head][element]."""
        return self.pages()[layer][:, list(block_ids)]

    def write_blocks(self, layer: int, block_ids: Sequence[int], data: Pages) -> None:
        """Replace blocks."""
        self.pages()[layer][:, list(block_ids)] = data

    def hashed(
        self,
        digest: Callable[[Sequence[HashedLayer], Sequence[int], int], T],
        block_ids: Sequence[int],
        blocks_per_chunk: int,
    ) -> T:
        """Return what a function of `checksums` makes of the layers."""
        return digest(self.hashed_layers(), block_ids, blocks_per_chunk)

    def in_use(self) -> AbstractContextManager[None]:
        """Keep the memory mapped."""
        return self._tenancy.in_use()

    def close(self) -> None:
        """Unmap, now or when the last use ends."""
        self._tenancy.close()

    def _unmap(self) -> None:
        self._tensors.clear()
        for segment in self._segments.values():
            unmap(segment)
        self._segments.clear()


def _plain(name: str) -> str:
    return name.removeprefix("/")


def _map_segments(handles: Sequence[CpuShmHandle]) -> dict[str, mmap.mmap]:
    """Map each distinct segment once, as far as any tensor needs it."""
    sizes: dict[str, int] = {}
    for handle in handles:
        _check_extent(handle)
        name = _plain(handle.shm_name)
        sizes[name] = max(sizes.get(name, 0), handle.nbytes)
    segments: dict[str, mmap.mmap] = {}
    try:
        for name, nbytes in sizes.items():
            segments[name] = _map_segment(name, nbytes)
    except RefusalError:
        for segment in segments.values():
            unmap(segment)
        raise
    return segments


def _check_extent(handle: CpuShmHandle) -> None:
    # Zero strides make a tensor larger than its memory; no paged cache looks like that.
    item_bytes = ITEM_BYTES[handle.dtype]
    if math.prod(handle.shape) * item_bytes > handle.nbytes:
        raise RefusalError(f"a tensor of shape {handle.shape} overlaps itself")


def _map_segment(name: str, nbytes: int) -> mmap.mmap:
    if not 0 < len(name.encode()) <= MAX_SEGMENT_NAME or "/" in name or "\0" in name:
        raise RefusalError(f"{clip(name)} is no name of a shared-memory segment")
    try:
        descriptor = open_segment(name)
    except OSError as error:
        raise RefusalError(f"segment {clip(name)}: {error}") from error
    try:
        size = os.fstat(descriptor).st_size
        if size < nbytes:
            raise RefusalError(f"segment {clip(name)} has {size} bytes, expected {nbytes}")
        return mmap.mmap(descriptor, nbytes)
    except OSError as error:
        raise RefusalError(f"segment {clip(name)}: {error}") from error
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInstance:
    """A client that copies chunks itself (engine_driven); one KV group."""

    model_name: str
    world_size: int
    block_size: int
    use_mla: bool
    shape: tuple[int, ...]
    dtype: str
    liveness: Liveness

    @property
    def object_bytes(self) -> int:
        """Return the size of one chunk object."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


_COUNT_FIELDS = ("world_size", "block_size", "num_layers", "hidden_dim_size")


def parse_engine_instance(
    fields: Mapping[str, Any], *, chunk_size: int, now_ns: int
) -> tuple[int, EngineInstance]:
    """Return (instance id, instance) from a registration map, or raise RefusalError."""
    instance_id, model_name = fields.get("instance_id"), fields.get("model_name")
    dtype, use_mla = fields.get("dtype_str"), fields.get("use_mla")
    if not is_int(instance_id) or not isinstance(model_name, str) or type(use_mla) is not bool:
        raise RefusalError(f"registration {clip(fields)} has a field of a wrong type")
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise RefusalError(f"dtype_str is {clip(dtype)}, expected one of {', '.join(ITEM_BYTES)}")
    world_size, block_size, layers, hidden = (_count(fields, name) for name in _COUNT_FIELDS)
    if world_size > MAX_WORLD_SIZE:
        raise RefusalError(f"world_size is {world_size}, expected at most {MAX_WORLD_SIZE}")
    has_slots = fields.get("num_physical_slots") is not None
    slots = _count(fields, "num_physical_slots") if has_slots else chunk_size
    shape = (layers, slots, hidden) if use_mla else (2, layers, slots, hidden)
    if math.prod(shape) > MAX_OBJECT_BYTES:
        raise RefusalError(f"chunk objects of shape {shape} are too large")
    return instance_id, EngineInstance(
        model_name=model_name,
        world_size=world_size,
        block_size=block_size,
        use_mla=use_mla,
        shape=shape,
        dtype=dtype,
        liveness=Liveness(last_seen_ns=now_ns),
    )


def _count(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if not is_int(value) or not 0 < value <= MAX_OBJECT_BYTES:
        raise RefusalError(f"registration: {name} is {clip(value)}, expected a positive integer")
    return value


Instance: TypeAlias = MappedInstance | CudaInstance
"""A client whose KV tensors the server has mapped, on the host or on a GPU."""


class Registry:
    """All registered instances, by id; the two modes have separate ids."""

    def __init__(self, patience: Patience | None = None) -> None:
        self.patience = patience or Patience()
        self.mapped: dict[int, Instance] = {}
        self.engine: dict[int, EngineInstance] = {}

    def has_room(self) -> bool:
        """Tell whether another instance may register."""
        return len(self.mapped) + len(self.engine) < MAX_INSTANCES

    def knows(self, model_name: str, world_size: int) -> bool:
        """Tell whether any instance serves this pair; LOOKUP finds nothing else."""
        pairs = [(held.model_name, held.world_size) for held in self.mapped.values()]
        pairs += [(held.model_name, held.world_size) for held in self.engine.values()]
        return (model_name, world_size) in pairs

    def touch(self, instance_id: int, now_ns: int, *, ping: bool = False) -> None:
        """Note that an instance was heard of; only a PING promises more of them."""
        for held in (self.mapped.get(instance_id), self.engine.get(instance_id)):
            if held is not None:
                held.liveness.last_seen_ns = now_ns
                held.liveness.pinged = held.liveness.pinged or ping

    def remove_mapped(self, instance_id: int) -> None:
        """Drop a mapped instance, if there is one."""
        instance = self.mapped.pop(instance_id, None)
        if instance is not None:
            instance.close()

    def stale(self, now_ns: int) -> tuple[list[int], list[int]]:
        """Return the ids of mapped and of engine-driven instances that fell silent."""
        patience = self.patience
        mapped = [i for i, held in self.mapped.items() if held.liveness.is_stale(now_ns, patience)]
        engine = [i for i, held in self.engine.items() if held.liveness.is_stale(now_ns, patience)]
        return mapped, engine

    def close(self) -> None:
        """Unmap everything."""
        for instance_id in list(self.mapped):
            self.remove_mapped(instance_id)

"""The registered instances of both modes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchserver.refserver.instance import Instance
from benchserver.refserver.liveness import Liveness, ReapTimeouts
from benchserver.refserver.refusal import RefusalError
from protocol.dtypes import ITEM_BYTES
from protocol.values import clip, is_int

MAX_INSTANCES = 1024
"""A bench has a few dozen; each one maps memory."""

MAX_LAYERS = 4096
MAX_WORLD_SIZE = 4096
"""LOOKUP walks all ranks of a chunk; nobody has more."""

MAX_OBJECT_BYTES = 1 << 40
"""More than any chunk has; keeps the arithmetic of a hostile registration small."""


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


class Registry:
    """All registered instances, by id; the two modes have separate ids."""

    def __init__(self, timeouts: ReapTimeouts | None = None) -> None:
        self.timeouts = timeouts or ReapTimeouts()
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
            instance.uses.close()

    def stale(self, now_ns: int) -> tuple[list[int], list[int]]:
        """Return the ids of mapped and of engine-driven instances that fell silent."""
        timeouts = self.timeouts
        mapped = [i for i, held in self.mapped.items() if held.liveness.is_stale(now_ns, timeouts)]
        engine = [i for i, held in self.engine.items() if held.liveness.is_stale(now_ns, timeouts)]
        return mapped, engine

    def close(self) -> None:
        """Unmap everything."""
        for instance_id in list(self.mapped):
            self.remove_mapped(instance_id)

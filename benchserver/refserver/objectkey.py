"""What names a chunk object, in the index, in the tiers, and for a client's key."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.keys import CacheKey


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """What makes two chunk objects the same.

    `group` is the object group: the index of the kernel group whose bytes the object holds.
    """

    chunk_hash: bytes
    model_name: str
    world_size: int
    rank: int
    salt: str
    group: int = 0


def object_key(key: CacheKey, chunk_hash: bytes, rank: int, group: int) -> ObjectKey:
    """Return the identity of one kernel group's part of one chunk of one rank."""
    return ObjectKey(chunk_hash, key.model_name, key.world_size, rank, key.cache_salt, group)

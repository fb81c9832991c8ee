"""What the cache counts: values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCounts:
    """What `/status` says of the cache."""

    objects: int
    reserved: int
    write_locked: int
    read_locked: int
    used_bytes: int
    capacity_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheTotals:
    """What has happened since the start; no number ever falls.

    stored: made visible, promotions from L2 included.  evicted: stored objects that went because
    room was needed.  cleared: stored objects that `clear` dropped.  deleted: dropped by `delete`,
    reserved ones too.  Nothing else ends a stored object.  refused: calls of `reserve` that found
    no room, and the objects that they were for.  expired: objects whose reservation ran out of
    time.
    """

    stored_objects: int = 0
    stored_bytes: int = 0
    evicted_objects: int = 0
    evicted_bytes: int = 0
    cleared_objects: int = 0
    refused_reservations: int = 0
    refused_objects: int = 0
    expired_reservations: int = 0
    deleted_objects: int = 0
    read_objects: int = 0
    read_bytes: int = 0
    """Of reads that were granted: all their objects were there, and locked."""

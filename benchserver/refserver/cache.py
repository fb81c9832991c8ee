"""The index of chunk objects: which are stored, locked, reserved, evicted.

Pure bookkeeping over offsets of an arena: it takes `now_ns` and never sees a byte.

An object's life: `reserve` (takes memory, invisible) -> `commit` (visible, the newest) -> evicted
or cleared.  LOOKUP takes read locks, which count, belong to nobody and expire together; a read
turns one lock into a running read; both make the object the newest.  Memory that a read or a
write uses right now is pinned: what is dropped meanwhile (`clear` by force, an expired
reservation) keeps its bytes until they end.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchserver.clock import NS_PER_S
from benchserver.refserver.arena import NO_ROOM, FreeList, aligned

READ_LOCK_TTL_NS = 300 * NS_PER_S
WRITE_TTL_NS = 600 * NS_PER_S
EVICTION_WATERMARK = 0.8
EVICTION_RATIO = 0.2
"""The four are the real server's defaults (0.5.6); the ratio is of the number of objects."""


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """What makes two chunk objects the same."""

    chunk_hash: bytes
    model_name: str
    world_size: int
    rank: int
    salt: str


@dataclass(slots=True, eq=False, kw_only=True)
class Slot:
    """One object's place in the arena and who holds it there."""

    key: ObjectKey
    offset: int
    nbytes: int
    deadline_ns: int
    """When the reservation, or later the read locks, expire."""
    read_locks: int = 0
    readers: int = 0
    writing: bool = True
    dropped: bool = False

    def locks_at(self, now_ns: int) -> int:
        """Return how many read locks count now."""
        return self.read_locks if now_ns < self.deadline_ns else 0

    def is_held_at(self, now_ns: int) -> bool:
        """Tell whether a lock or a running read keeps the object."""
        return self.readers > 0 or self.locks_at(now_ns) > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Answer of `reserve`: the new slots by position in the request.

    `refused` True: there was no room for all of them, so there is none of them.
    """

    slots: tuple[tuple[int, Slot], ...]
    refused: bool = False

    def only_slots(self) -> tuple[Slot, ...]:
        """Return the slots without their positions."""
        return tuple(slot for _, slot in self.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCounts:
    """What `/status` says of the cache."""

    objects: int
    reserved: int
    write_locked: int
    read_locked: int
    used_bytes: int
    capacity_bytes: int


class Cache:
    """The chunk objects of one arena; stored ones in order of use, oldest first."""

    def __init__(self, capacity_bytes: int) -> None:
        self._space = FreeList(capacity_bytes)
        self._stored: OrderedDict[ObjectKey, Slot] = OrderedDict()
        self._reserved: dict[ObjectKey, Slot] = {}

    def reserve(self, keys: Sequence[ObjectKey], nbytes: int, now_ns: int) -> Reservation:
        """Take memory for the keys that are neither stored nor reserved: for all or for none."""
        self.expire(now_ns)
        known = (self._stored, self._reserved)
        wanted = {key: i for i, key in enumerate(keys) if not any(key in held for held in known)}
        need_bytes = len(wanted) * aligned(nbytes)
        if not wanted:
            return Reservation(slots=())
        if need_bytes > self._space.capacity_bytes:
            return Reservation(slots=(), refused=True)
        if self._used_bytes() >= EVICTION_WATERMARK * self._space.capacity_bytes:
            self._evict(now_ns)
        offsets = self._take(len(wanted), nbytes)
        if not offsets:
            self._evict(now_ns)
            offsets = self._take(len(wanted), nbytes)
        if not offsets:
            return Reservation(slots=(), refused=True)
        slots = [
            Slot(key=key, offset=offset, nbytes=nbytes, deadline_ns=now_ns + WRITE_TTL_NS)
            for key, offset in zip(wanted, offsets, strict=True)
        ]
        self._reserved.update({slot.key: slot for slot in slots})
        return Reservation(slots=tuple(zip(wanted.values(), slots, strict=True)))

    def commit(self, slots: Iterable[Slot]) -> None:
        """End writes: what is still reserved becomes visible, the newest of all."""
        for slot in slots:
            if self._reserved.get(slot.key) is slot:
                del self._reserved[slot.key]
                self._stored[slot.key] = slot
                slot.read_locks = 0
            self._end_write(slot)

    def abort(self, slots: Iterable[Slot]) -> None:
        """End writes that came to nothing: their reservations are gone."""
        for slot in slots:
            if self._reserved.get(slot.key) is slot:
                self._drop(slot)
            self._end_write(slot)

    def lock_prefix(self, rows: Iterable[Sequence[ObjectKey]], *, readers: int, now_ns: int) -> int:
        """Lock the leading rows whose every object is stored; return how many rows they are."""
        hits = 0
        for row in rows:
            slots = [self._stored.get(key) for key in row]
            found = [slot for slot in slots if slot is not None]
            if len(found) < len(slots):
                break
            hits += 1
            for slot in found:
                slot.read_locks = slot.locks_at(now_ns) + readers
                slot.deadline_ns = now_ns + READ_LOCK_TTL_NS
                self._stored.move_to_end(slot.key)
        return hits

    def unlock(self, keys: Iterable[ObjectKey], *, count: int, now_ns: int) -> None:
        """Give back up to `count` read locks of each object that is stored."""
        for key in keys:
            slot = self._stored.get(key)
            if slot is not None:
                slot.read_locks = max(0, slot.locks_at(now_ns) - count)

    def begin_read(self, keys: Sequence[ObjectKey], now_ns: int) -> tuple[Slot, ...] | None:
        """Turn one lock of each object into a running read.

        Returns None if any object is missing or not locked; one lock of each of the others is
        gone then too, as a failed RETRIEVE leaves it (0.5.6).
        """
        found = [slot for key in keys if (slot := self._stored.get(key)) is not None]
        locked = [slot for slot in found if slot.locks_at(now_ns) > 0]
        for slot in locked:
            slot.read_locks -= 1
        if len(locked) < len(keys):
            return None
        for slot in locked:
            slot.readers += 1
            self._stored.move_to_end(slot.key)
        return tuple(locked)

    def has(self, key: ObjectKey) -> bool:
        """Tell whether an object is stored."""
        return key in self._stored

    def hold(self, slots: Iterable[Slot]) -> None:
        """Begin reads that need no lock, of slots that were just committed."""
        for slot in slots:
            slot.readers += 1

    def end_read(self, slots: Iterable[Slot]) -> None:
        """End running reads."""
        for slot in slots:
            slot.readers -= 1
            self._free_if_unused(slot)

    def clear(self, *, force: bool, now_ns: int) -> None:
        """Drop every object that nobody holds; by force, everything, reservations too."""
        for slot in list(self._stored.values()):
            if force or not slot.is_held_at(now_ns):
                self._drop(slot)
        if force:
            for slot in list(self._reserved.values()):
                self._drop(slot)

    def expire(self, now_ns: int) -> None:
        """Drop reservations whose time is over."""
        for slot in [s for s in self._reserved.values() if now_ns >= s.deadline_ns]:
            self._drop(slot)

    def counts(self, now_ns: int) -> CacheCounts:
        """Return the numbers for `/status`."""
        live = sum(now_ns < slot.deadline_ns for slot in self._reserved.values())
        return CacheCounts(
            objects=len(self._stored) + len(self._reserved),
            reserved=len(self._reserved),
            write_locked=live,
            read_locked=sum(slot.is_held_at(now_ns) for slot in self._stored.values()),
            used_bytes=self._used_bytes(),
            capacity_bytes=self._space.capacity_bytes,
        )

    def _used_bytes(self) -> int:
        return self._space.capacity_bytes - self._space.free_bytes

    def _take(self, count: int, nbytes: int) -> list[int]:
        """Take memory for `count` objects, or none at all and return []."""
        offsets: list[int] = []
        for _ in range(count):
            offset = self._space.take(nbytes)
            if offset == NO_ROOM:
                for taken in offsets:
                    self._space.give(taken, nbytes)
                return []
            offsets.append(offset)
        return offsets

    def _evict(self, now_ns: int) -> None:
        """Drop the oldest objects that nobody holds: a share of all, at least one."""
        quota = max(1, int(len(self._stored) * EVICTION_RATIO))
        for slot in list(self._stored.values()):
            if not quota:
                return
            if not slot.is_held_at(now_ns):
                self._drop(slot)
                quota -= 1

    def _drop(self, slot: Slot) -> None:
        for held in (self._stored, self._reserved):
            if held.get(slot.key) is slot:
                del held[slot.key]
        slot.dropped = True
        self._free_if_unused(slot)

    def _end_write(self, slot: Slot) -> None:
        slot.writing = False
        self._free_if_unused(slot)

    def _free_if_unused(self, slot: Slot) -> None:
        if slot.dropped and not slot.writing and not slot.readers:
            self._space.give(slot.offset, slot.nbytes)

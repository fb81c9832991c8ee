"""The index of chunk objects: which are stored, locked, reserved, evicted.

Pure bookkeeping over offsets of an arena: it takes `now_ns` and never sees a byte.

An object's life: `reserve` (takes memory, invisible) -> `commit` (visible, the newest) -> evicted
or cleared; nothing else ends the life of a stored object.  LOOKUP takes read locks, which count,
belong to nobody and expire together; a read turns one lock into a running read; both make the
object the newest.  Memory that a read or a write uses right now is pinned: what is dropped
meanwhile (`clear` by force, an expired reservation) keeps its bytes until they end.

Objects that are used together are made the newest last one first, as the real server does
(0.5.6): the end of a sequence is evicted before its beginning, so that what is left is a prefix.

With a write-back (`before_eviction`), an object that nothing else keeps leaves in two steps:
chosen, it is handed over to be written, stays visible and pinned; written, it goes, unless
somebody has locked it meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from benchserver.clock import NS_PER_S
from benchserver.refserver.defaults import (
    DEFAULT_EVICTION_RATIO,
    DEFAULT_EVICTION_TRIGGER_WATERMARK,
    DEFAULT_L1_READ_TTL_S,
    DEFAULT_L1_WRITE_TTL_S,
)
from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.store.counters import CacheCounts, CacheTotals
from benchserver.refserver.store.freelist import NO_ROOM, FreeList, aligned
from benchserver.refserver.store.slots import ObjectSlot, Reservation

READ_LOCK_TTL_NS = DEFAULT_L1_READ_TTL_S * NS_PER_S
WRITE_TTL_NS = DEFAULT_L1_WRITE_TTL_S * NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePolicy:
    """How long locks last, and when and how much is evicted."""

    read_ttl_ns: int = READ_LOCK_TTL_NS
    write_ttl_ns: int = WRITE_TTL_NS
    watermark: float = DEFAULT_EVICTION_TRIGGER_WATERMARK
    eviction_ratio: float = DEFAULT_EVICTION_RATIO


class Cache:
    """The chunk objects of one arena; stored ones in order of use, oldest first."""

    def __init__(self, capacity_bytes: int, policy: CachePolicy | None = None) -> None:
        self.policy = policy or CachePolicy()
        self._totals = CacheTotals()
        self._space = FreeList(capacity_bytes)
        self._stored: OrderedDict[ObjectKey, ObjectSlot] = OrderedDict()
        self._reserved: dict[ObjectKey, ObjectSlot] = {}
        self._write_back: Callable[[ObjectSlot], None] | None = None
        self._leaving: set[ObjectSlot] = set()

    def before_eviction(self, write_back: Callable[[ObjectSlot], None]) -> None:
        """Hand every object that is to be evicted, and that no tier has, to a function first.

        The object is pinned until `written_back` is called for it.
        """
        self._write_back = write_back

    def reserve(
        self,
        keys: Sequence[ObjectKey],
        group_bytes: Sequence[int],
        now_ns: int,
        *,
        may_wait: bool = False,
    ) -> Reservation:
        """Take memory for the keys that are neither stored nor reserved: for all or for none.

        `group_bytes` holds the size of an object for each object group.  Where write-backs are
        under way and may make room, the answer is `pending` if the caller may wait for them.
        """
        self.expire(now_ns)
        known = (self._stored, self._reserved)
        wanted = {key: i for i, key in enumerate(keys) if not any(key in held for held in known)}
        if not wanted:
            return Reservation(slots=())
        sizes = [group_bytes[key.group] for key in wanted]
        offsets = self._find_room(sizes, now_ns)
        if not offsets and may_wait and self._leaving and self._could_hold(sizes):
            return Reservation(slots=(), pending=True)
        if not offsets:
            self._count(refused_reservations=1, refused_objects=len(wanted))
            return Reservation(slots=(), refused=True)
        deadline_ns = now_ns + self.policy.write_ttl_ns
        slots = [
            ObjectSlot(key=key, offset=offset, nbytes=nbytes, deadline_ns=deadline_ns)
            for key, offset, nbytes in zip(wanted, offsets, sizes, strict=True)
        ]
        self._reserved.update({slot.key: slot for slot in slots})
        return Reservation(slots=tuple(zip(wanted.values(), slots, strict=True)))

    def commit(self, slots: Sequence[ObjectSlot], *, backed: bool = False) -> None:
        """End writes: what is still reserved becomes visible, the newest of all.

        `backed`: a tier has these objects already.
        """
        for slot in reversed(slots):
            if self._reserved.get(slot.key) is slot:
                del self._reserved[slot.key]
                self._stored[slot.key] = slot
                slot.read_locks = 0
                slot.backed = backed
                self._count(stored_objects=1, stored_bytes=slot.nbytes)
            self._end_write(slot)

    def abort(self, slots: Iterable[ObjectSlot]) -> None:
        """End writes that came to nothing: their reservations are gone."""
        for slot in slots:
            if self._reserved.get(slot.key) is slot:
                self._drop(slot)
            self._end_write(slot)

    def lock_prefix(self, rows: Iterable[Sequence[ObjectKey]], *, readers: int, now_ns: int) -> int:
        """Lock the leading rows whose every object is stored; return how many rows they are."""
        hits = 0
        locked: list[ObjectKey] = []
        for row in rows:
            slots = [self._stored.get(key) for key in row]
            found = [slot for slot in slots if slot is not None]
            if len(found) < len(slots):
                break
            hits += 1
            for slot in found:
                slot.read_locks = slot.locks_at(now_ns) + readers
                slot.deadline_ns = now_ns + self.policy.read_ttl_ns
                locked.append(slot.key)
        self.touch(locked)
        return hits

    def touch(self, keys: Sequence[ObjectKey]) -> None:
        """Make what is stored of a sequence's objects the newest, its first object last."""
        for key in reversed(keys):
            if key in self._stored:
                self._stored.move_to_end(key)

    def unlock(self, keys: Iterable[ObjectKey], *, count: int, now_ns: int) -> None:
        """Give back up to `count` read locks of each object that is stored."""
        for key in keys:
            slot = self._stored.get(key)
            if slot is not None:
                slot.read_locks = max(0, slot.locks_at(now_ns) - count)

    def begin_read(self, keys: Sequence[ObjectKey], now_ns: int) -> tuple[ObjectSlot, ...] | None:
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
        self.touch(keys)
        self._count(read_objects=len(locked), read_bytes=sum(slot.nbytes for slot in locked))
        return tuple(locked)

    def has(self, key: ObjectKey) -> bool:
        """Tell whether an object is stored."""
        return key in self._stored

    def hold(self, slots: Iterable[ObjectSlot]) -> None:
        """Begin reads that need no lock, of slots that were just committed."""
        for slot in slots:
            slot.readers += 1

    def end_read(self, slots: Iterable[ObjectSlot]) -> None:
        """End running reads."""
        for slot in slots:
            slot.readers -= 1
            self._free_if_unused(slot)

    def written_back(self, slot: ObjectSlot, *, backed: bool, now_ns: int) -> None:
        """End the write-back of an object: it is evicted now, unless somebody holds it.

        `backed` False: no tier took it.  It is evicted all the same, for a tier that fails must
        not keep L1 from taking anything new.
        """
        self._leaving.discard(slot)
        slot.readers -= 1
        slot.backed = slot.backed or backed
        if slot.dropped:
            self._free_if_unused(slot)
        elif not slot.is_held_at(now_ns):
            self._evict_one(slot)

    def unbacked(self) -> tuple[ObjectSlot, ...]:
        """Return the stored objects that no tier has and none is being given, oldest first."""
        stored = self._stored.values()
        return tuple(slot for slot in stored if not slot.backed and slot not in self._leaving)

    def clear(self, *, force: bool, now_ns: int) -> None:
        """Drop every object that nobody holds; by force, everything, reservations too."""
        for slot in list(self._stored.values()):
            if force or not slot.is_held_at(now_ns):
                self._count(cleared_objects=1)
                self._drop(slot)
        if force:
            for slot in list(self._reserved.values()):
                self._drop(slot)

    def keys(self) -> tuple[ObjectKey, ...]:
        """Return the key of every object, stored or reserved."""
        return (*self._stored, *self._reserved)

    def delete(self, keys: Iterable[ObjectKey], *, force: bool, now_ns: int) -> tuple[int, int]:
        """Drop objects that are stored or reserved; by force, held and reserved ones too.

        Returns how many were dropped, and how many were left because somebody holds them.
        """
        found = [self._stored.get(key) or self._reserved.get(key) for key in dict.fromkeys(keys)]
        slots = [slot for slot in found if slot is not None]
        free = [s for s in slots if force or (s.key in self._stored and not s.is_held_at(now_ns))]
        for slot in free:
            self._drop(slot)
        self._count(deleted_objects=len(free))
        return len(free), len(slots) - len(free)

    def expire(self, now_ns: int) -> None:
        """Drop reservations whose time is over."""
        for slot in [s for s in self._reserved.values() if now_ns >= s.deadline_ns]:
            self._count(expired_reservations=1)
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

    def totals(self) -> CacheTotals:
        """Return the counters as they are now."""
        return self._totals

    def _used_bytes(self) -> int:
        return self._space.capacity_bytes - self._space.free_bytes

    def _find_room(self, sizes: Sequence[int], now_ns: int) -> list[int]:
        """Take memory for objects of these sizes, evicting where it is short; [] for none.

        While objects are being written back, no more are chosen.
        """
        if not self._could_hold(sizes):
            return []
        is_short = self._used_bytes() >= self.policy.watermark * self._space.capacity_bytes
        if is_short and not self._leaving:
            self._evict(now_ns)
        offsets = self._take(sizes)
        if not offsets and not self._leaving:
            self._evict(now_ns)
            offsets = self._take(sizes)
        return offsets

    def _could_hold(self, sizes: Sequence[int]) -> bool:
        return sum(aligned(nbytes) for nbytes in sizes) <= self._space.capacity_bytes

    def _take(self, sizes: Sequence[int]) -> list[int]:
        """Take memory for objects of these sizes, or none at all and return []."""
        offsets: list[int] = []
        for nbytes in sizes:
            offset = self._space.take(nbytes)
            if offset == NO_ROOM:
                for taken, size in zip(offsets, sizes, strict=False):
                    self._space.give(taken, size)
                return []
            offsets.append(offset)
        return offsets

    def _evict(self, now_ns: int) -> None:
        """Let the oldest objects that nobody holds go: a share of all, at least one."""
        quota = max(1, int(len(self._stored) * self.policy.eviction_ratio))
        for slot in list(self._stored.values()):
            if not quota:
                return
            if slot.is_held_at(now_ns):
                continue
            quota -= 1
            if self._write_back is None or slot.backed:
                self._evict_one(slot)
            else:
                slot.readers += 1
                self._leaving.add(slot)
                self._write_back(slot)

    def _evict_one(self, slot: ObjectSlot) -> None:
        self._count(evicted_objects=1, evicted_bytes=slot.nbytes)
        self._drop(slot)

    def _count(self, **more: int) -> None:
        counted = {name: getattr(self._totals, name) + n for name, n in more.items()}
        self._totals = replace(self._totals, **counted)

    def _drop(self, slot: ObjectSlot) -> None:
        for held in (self._stored, self._reserved):
            if held.get(slot.key) is slot:
                del held[slot.key]
        slot.dropped = True
        self._free_if_unused(slot)

    def _end_write(self, slot: ObjectSlot) -> None:
        slot.writing = False
        self._free_if_unused(slot)

    def _free_if_unused(self, slot: ObjectSlot) -> None:
        if slot.dropped and not slot.writing and not slot.readers:
            self._space.give(slot.offset, slot.nbytes)

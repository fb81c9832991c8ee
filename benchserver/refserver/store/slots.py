"""A place in the arena that an object has or is given: its locks, its readers, its writer."""

from __future__ import annotations

from dataclasses import dataclass

from benchserver.refserver.objectkey import ObjectKey


@dataclass(slots=True, eq=False, kw_only=True)
class ObjectSlot:
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
    backed: bool = False
    """A tier has it, or had it: eviction need not write it."""

    def locks_at(self, now_ns: int) -> int:
        """Return how many read locks count now."""
        return self.read_locks if now_ns < self.deadline_ns else 0

    def is_held_at(self, now_ns: int) -> bool:
        """Tell whether a lock or a running read keeps the object."""
        return self.readers > 0 or self.locks_at(now_ns) > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Answer of `reserve`: the new slots by position in the request.

    `refused` True: there was no room for all of them, so there is none of them.  `pending` True:
    none yet, and write-backs under way may still make room.
    """

    slots: tuple[tuple[int, ObjectSlot], ...]
    refused: bool = False
    pending: bool = False

    def only_slots(self) -> tuple[ObjectSlot, ...]:
        """Return the slots without their positions."""
        return tuple(slot for _, slot in self.slots)

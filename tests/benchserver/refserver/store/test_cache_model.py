"""The index against a model: nothing stored goes unaccounted, nothing held goes, no byte is shared.

The model knows what is stored, who holds it and why it may go; it does not know which objects an
eviction chooses, but learns it from the index and checks that each was free to go.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.store.cache import READ_LOCK_TTL_NS, WRITE_TTL_NS, Cache
from benchserver.refserver.store.freelist import ALIGN_BYTES, aligned
from benchserver.refserver.store.slots import ObjectSlot

SIZES = (ALIGN_BYTES, 2 * ALIGN_BYTES + 1)
"""Of the two groups."""

KEYS = [
    ObjectKey(bytes([chunk]) * 32, "m", 1, 0, "", group) for chunk in range(5) for group in (0, 1)
]
PAGES = 12

several = st.lists(st.sampled_from(KEYS), min_size=1, max_size=6, unique=True)


class CacheModel(RuleBasedStateMachine):
    """One cache, without a write-back."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache(PAGES * ALIGN_BYTES)
        self.now_ns = 0
        self.stored: dict[ObjectKey, ObjectSlot] = {}
        self.locks: dict[ObjectKey, tuple[int, int]] = {}
        self.writing: list[ObjectSlot] = []
        self.reading: list[tuple[ObjectSlot, ...]] = []
        self.leaving: list[ObjectSlot] = []
        self.gone = 0

    def locks_of(self, key: ObjectKey) -> int:
        count, deadline_ns = self.locks.get(key, (0, 0))
        return count if self.now_ns < deadline_ns else 0

    def is_held(self, key: ObjectKey) -> bool:
        slot = self.stored[key]
        return self.locks_of(key) > 0 or any(slot in slots for slots in self.reading)

    def note_evictions(self) -> None:
        """Learn what an eviction took; none of it may have been held."""
        for key in [key for key in self.stored if not self.cache.has(key)]:
            assert not self.is_held(key), "a held object was evicted"
            self.forget(key)
            self.gone += 1
        assert self.cache.totals().evicted_objects == self.gone

    def forget(self, key: ObjectKey) -> None:
        del self.stored[key]
        self.locks.pop(key, None)

    @rule(keys=several)
    def reserve(self, keys: list[ObjectKey]) -> None:
        refused_before = self.cache.totals().refused_reservations
        known = {slot.key for slot in self.writing if not slot.dropped} | set(self.stored)
        reservation = self.cache.reserve(keys, SIZES, self.now_ns)
        assert [keys[index] for index, _ in reservation.slots] == [
            slot.key for slot in reservation.only_slots()
        ]
        assert all(slot.nbytes == SIZES[slot.key.group] for slot in reservation.only_slots())
        refused = self.cache.totals().refused_reservations - refused_before
        assert refused == reservation.refused
        if not reservation.refused:
            expired = {s.key for s in self.writing if self.now_ns >= s.deadline_ns} - set(
                self.stored
            )
            got = {slot.key for slot in reservation.only_slots()}
            assert got >= set(keys) - known
            assert got <= (set(keys) - known) | expired
        else:
            assert not reservation.slots
        self.writing.extend(reservation.only_slots())
        self.note_evictions()

    @precondition(lambda self: self.writing)
    @rule(data=st.data(), good=st.booleans())
    def end_write(self, data: st.DataObject, good: bool) -> None:
        slot = self.writing.pop(data.draw(st.integers(0, len(self.writing) - 1)))
        visible = good and not slot.dropped
        (self.cache.commit if good else self.cache.abort)([slot])
        assert self.cache.has(slot.key) == (visible or slot.key in self.stored)
        if visible:
            self.stored[slot.key] = slot

    @rule(chunks=st.integers(1, 5), readers=st.integers(1, 2))
    def lock(self, chunks: int, readers: int) -> None:
        rows = [KEYS[2 * chunk : 2 * chunk + 2] for chunk in range(chunks)]
        hits = self.cache.lock_prefix(rows, readers=readers, now_ns=self.now_ns)
        whole = [all(key in self.stored for key in row) for row in rows]
        assert hits == [*whole, False].index(False)
        for row in rows[:hits]:
            for key in row:
                count = self.locks_of(key) + readers
                self.locks[key] = (count, self.now_ns + READ_LOCK_TTL_NS)

    @rule(keys=several)
    def unlock(self, keys: list[ObjectKey]) -> None:
        self.cache.unlock(keys, count=1, now_ns=self.now_ns)
        for key in keys:
            self.take_lock(key)

    def take_lock(self, key: ObjectKey) -> None:
        if key in self.locks:
            count, deadline_ns = self.locks_of(key), self.locks[key][1]
            self.locks[key] = (max(0, count - 1), deadline_ns)

    @rule(keys=several)
    def begin_read(self, keys: list[ObjectKey]) -> None:
        granted = all(key in self.stored and self.locks_of(key) for key in keys)
        slots = self.cache.begin_read(keys, self.now_ns)
        assert (slots is not None) == granted
        for key in keys:
            self.take_lock(key)
        if slots is not None:
            assert list(slots) == [self.stored[key] for key in keys]
            self.reading.append(slots)

    @precondition(lambda self: self.reading)
    @rule()
    def end_read(self) -> None:
        self.cache.end_read(self.reading.pop(0))

    @rule(force=st.booleans())
    def clear(self, force: bool) -> None:
        before = self.cache.totals().cleared_objects
        free = [key for key in self.stored if force or not self.is_held(key)]
        self.cache.clear(force=force, now_ns=self.now_ns)
        assert not any(self.cache.has(key) for key in free)
        for key in free:
            self.forget(key)
        assert self.cache.totals().cleared_objects == before + len(free)
        self.note_evictions()

    @rule(share=st.sampled_from((0.3, 1.1)))
    def let_time_pass(self, share: float) -> None:
        self.now_ns += int(share * WRITE_TTL_NS)
        self.cache.expire(self.now_ns)
        self.note_evictions()

    @invariant()
    def what_is_stored_is_what_was_and_has_not_gone(self) -> None:
        totals = self.cache.totals()
        assert all(self.cache.has(key) for key in self.stored)
        gone = totals.evicted_objects + totals.cleared_objects
        assert totals.stored_objects - gone == len(self.stored)

    @invariant()
    def no_byte_belongs_to_two_and_none_is_lost(self) -> None:
        pinned = [slot for slots in self.reading for slot in slots]
        live = {id(s): s for s in [*self.stored.values(), *self.writing, *pinned, *self.leaving]}
        ends = 0
        for slot in sorted(live.values(), key=lambda slot: slot.offset):
            assert slot.offset >= ends
            ends = slot.offset + aligned(slot.nbytes)
        used_bytes = sum(aligned(slot.nbytes) for slot in live.values())
        assert self.cache.counts(self.now_ns).used_bytes == used_bytes


class WriteBackModel(CacheModel):
    """A cache that hands over what it evicts; nothing goes before it was written."""

    def __init__(self) -> None:
        super().__init__()
        self.backed: set[ObjectSlot] = set()
        self.cache.before_eviction(self.hand_over)

    def hand_over(self, slot: ObjectSlot) -> None:
        assert slot not in self.backed, "written twice"
        assert slot not in self.leaving
        self.leaving.append(slot)

    def is_held(self, key: ObjectKey) -> bool:
        return super().is_held(key) or self.stored[key] in self.leaving

    def note_evictions(self) -> None:
        for key in [key for key in self.stored if not self.cache.has(key)]:
            assert self.stored[key] in self.backed, "evicted, and never written"
        super().note_evictions()

    @rule(keys=several)
    def reserve_or_wait(self, keys: list[ObjectKey]) -> None:
        reservation = self.cache.reserve(keys, SIZES, self.now_ns, may_wait=True)
        assert not reservation.pending or (self.leaving and not reservation.slots)
        self.writing.extend(reservation.only_slots())
        self.note_evictions()

    @precondition(lambda self: self.leaving)
    @rule(data=st.data())
    def written_back(self, data: st.DataObject) -> None:
        slot = self.leaving.pop(data.draw(st.integers(0, len(self.leaving) - 1)))
        self.backed.add(slot)
        kept = self.stored.get(slot.key) is slot and self.is_held(slot.key)
        self.cache.written_back(slot, backed=True, now_ns=self.now_ns)
        assert not kept or self.cache.has(slot.key)
        self.note_evictions()

    def teardown(self) -> None:
        """Let every write-back and every write end: no memory may be left taken."""
        for slot in self.leaving:
            self.cache.written_back(slot, backed=True, now_ns=self.now_ns)
        self.cache.abort(self.writing)
        for slots in self.reading:
            self.cache.end_read(slots)
        self.cache.clear(force=True, now_ns=self.now_ns)
        assert self.cache.counts(self.now_ns).used_bytes == 0


TestCacheModel = CacheModel.TestCase
TestWriteBackModel = WriteBackModel.TestCase
TestCacheModel.settings = TestWriteBackModel.settings = settings(
    max_examples=60, stateful_step_count=60, deadline=None
)

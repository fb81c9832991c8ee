"""The index: visibility, locks, deadlines, eviction, refusal; time is an argument."""

from __future__ import annotations

import pytest

from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.store.cache import READ_LOCK_TTL_NS, WRITE_TTL_NS, Cache, CachePolicy
from benchserver.refserver.store.freelist import ALIGN_BYTES
from benchserver.refserver.store.slots import ObjectSlot, Reservation


def key(chunk: int, rank: int = 0, world_size: int = 1, salt: str = "") -> ObjectKey:
    return ObjectKey(chunk.to_bytes(32, "big"), "m", world_size, rank, salt)


def cache_of(pages: int) -> Cache:
    return Cache(pages * ALIGN_BYTES)


def reserve(cache: Cache, *chunks: int, now_ns: int = 0) -> Reservation:
    return cache.reserve([key(chunk) for chunk in chunks], (1,), now_ns)


def store(cache: Cache, *chunks: int, now_ns: int = 0) -> Reservation:
    reservation = reserve(cache, *chunks, now_ns=now_ns)
    cache.commit(reservation.only_slots())
    return reservation


def lock(cache: Cache, *chunks: int, readers: int = 1, now_ns: int = 0) -> int:
    return cache.lock_prefix([(key(c),) for c in chunks], readers=readers, now_ns=now_ns)


def stored(cache: Cache, *chunks: int) -> list[int]:
    return [c for c in chunks if cache.lock_prefix([(key(c),)], readers=0, now_ns=0)]


def used_pages(cache: Cache) -> int:
    return cache.counts(0).used_bytes // ALIGN_BYTES


def test_an_object_is_visible_after_its_commit_and_not_before() -> None:
    cache = cache_of(10)
    reservation = reserve(cache, 1)
    assert stored(cache, 1) == []
    cache.commit(reservation.only_slots())
    assert stored(cache, 1) == [1]


def test_an_aborted_write_leaves_nothing() -> None:
    cache = cache_of(10)
    cache.abort(reserve(cache, 1, 2).only_slots())
    assert stored(cache, 1, 2) == []
    assert used_pages(cache) == 0
    assert len(store(cache, 1, 2).slots) == 2


def test_the_first_data_stays() -> None:
    cache = cache_of(10)
    store(cache, 1)
    again = reserve(cache, 1, 2)
    assert [index for index, _ in again.slots] == [1]
    assert reserve(cache, 1, 2).slots == ()


def test_a_store_that_does_not_fit_takes_nothing() -> None:
    cache = cache_of(4)
    store(cache, 1, 2)
    lock(cache, 1, 2)
    refused = reserve(cache, 3, 4, 5)
    assert refused.refused
    assert refused.slots == ()
    assert used_pages(cache) == 2
    assert stored(cache, 1, 2, 3, 4, 5) == [1, 2]


def test_a_store_larger_than_everything_is_refused_without_evicting() -> None:
    cache = cache_of(2)
    store(cache, 1)
    assert reserve(cache, 3, 4, 5).refused
    assert stored(cache, 1) == [1]


def test_a_full_cache_evicts_a_fifth_of_its_objects_oldest_first() -> None:
    cache = cache_of(12)
    store(cache, *range(10))
    store(cache, 100)
    assert stored(cache, *range(10)) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_below_the_watermark_nothing_is_evicted() -> None:
    cache = cache_of(10)
    store(cache, *range(7))
    store(cache, 100)
    assert stored(cache, *range(7)) == list(range(7))


def test_use_protects_from_eviction() -> None:
    cache = cache_of(10)
    store(cache, *range(10))
    lock(cache, 8, 9, readers=1)
    cache.unlock([key(8), key(9)], count=1, now_ns=0)
    store(cache, 100)
    assert stored(cache, 5, 6, 7, 8, 9) == [5, 8, 9]


def test_what_is_left_of_a_sequence_is_a_prefix() -> None:
    """However it was used last: stored, looked up, read or touched."""
    for use in ("store", "lookup", "read", "touch"):
        cache = cache_of(10)
        store(cache, *(range(10) if use == "store" else (7, 2, 9, 0, 5, 1, 8, 3, 6, 4)))
        keys = [key(chunk) for chunk in range(10)]
        if use in ("lookup", "read"):
            lock(cache, *range(10))
        if use == "lookup":
            cache.unlock(keys, count=1, now_ns=0)
        if use == "read":
            cache.touch([*reversed(keys)])
            slots = cache.begin_read(keys, 0)
            assert slots is not None
            cache.end_read(slots)
        if use == "touch":
            cache.touch(keys)
        store(cache, 100)
        assert stored(cache, *range(10)) == list(range(8)), use


def test_objects_have_the_size_of_their_group() -> None:
    cache = cache_of(10)
    groups = [ObjectKey(bytes(32), "m", 1, 0, "", group) for group in range(3)]
    sizes = (1, 3 * ALIGN_BYTES, ALIGN_BYTES + 1)
    slots = cache.reserve(groups[1:], sizes, 0).only_slots()
    assert [slot.nbytes for slot in slots] == [3 * ALIGN_BYTES, ALIGN_BYTES + 1]
    assert used_pages(cache) == 5
    cache.commit(slots)
    assert cache.lock_prefix([groups], readers=1, now_ns=0) == 0
    cache.commit(cache.reserve(groups, sizes, 0).only_slots())
    assert cache.lock_prefix([groups], readers=1, now_ns=0) == 1
    assert used_pages(cache) == 6


def test_all_groups_of_a_batch_or_none() -> None:
    cache = cache_of(4)
    groups = [ObjectKey(bytes(32), "m", 1, 0, "", group) for group in range(2)]
    assert cache.reserve(groups, (ALIGN_BYTES, 4 * ALIGN_BYTES), 0).refused
    assert used_pages(cache) == 0


def test_locked_objects_are_never_evicted() -> None:
    cache = cache_of(10)
    store(cache, *range(10))
    for chunk in range(9):
        lock(cache, chunk)
    store(cache, 100)
    assert stored(cache, *range(10), 100) == [*range(9), 100]
    lock(cache, 100)
    assert reserve(cache, 101).refused


def test_a_gap_ends_the_hits_and_what_follows_is_not_locked() -> None:
    cache = cache_of(10)
    store(cache, 1, 2, 4)
    assert lock(cache, 1, 2, 3, 4) == 2
    assert cache.begin_read([key(4)], 0) is None
    assert cache.begin_read([key(1), key(2)], 0) is not None


@pytest.mark.parametrize("ranks", [(0,), (1,)])
def test_a_chunk_counts_only_if_every_rank_has_it(ranks: tuple[int, ...]) -> None:
    cache = cache_of(10)
    row = (key(1, 0, 2), key(1, 1, 2))
    cache.commit(cache.reserve([row[rank] for rank in ranks], (1,), 0).only_slots())
    assert cache.lock_prefix([row], readers=1, now_ns=0) == 0
    assert cache.counts(0).read_locked == 0
    cache.commit(cache.reserve(row, (1,), 0).only_slots())
    assert cache.lock_prefix([row], readers=1, now_ns=0) == 1
    assert cache.counts(0).read_locked == 2


def test_salt_model_and_world_size_are_part_of_the_identity() -> None:
    cache = cache_of(10)
    store(cache, 1)
    others = [key(1, salt="s"), key(1, world_size=2), ObjectKey(key(1).chunk_hash, "n", 1, 0, "")]
    assert [cache.lock_prefix([(other,)], readers=1, now_ns=0) for other in others] == [0, 0, 0]


def test_each_read_uses_up_one_lock() -> None:
    cache = cache_of(10)
    store(cache, 1)
    lock(cache, 1, readers=2)
    for _ in range(2):
        slots = cache.begin_read([key(1)], 0)
        assert slots is not None
        cache.end_read(slots)
    assert cache.begin_read([key(1)], 0) is None


def test_a_failed_read_uses_up_the_locks_of_what_was_there() -> None:
    cache = cache_of(10)
    store(cache, 1)
    lock(cache, 1)
    assert cache.begin_read([key(1), key(2)], 0) is None
    assert cache.counts(0).read_locked == 0


def test_locks_expire_together() -> None:
    cache = cache_of(10)
    store(cache, 1)
    lock(cache, 1, now_ns=0)
    assert cache.counts(READ_LOCK_TTL_NS - 1).read_locked == 1
    assert cache.begin_read([key(1)], READ_LOCK_TTL_NS) is None
    lock(cache, 1, now_ns=READ_LOCK_TTL_NS)
    assert cache.begin_read([key(1)], READ_LOCK_TTL_NS + 1) is not None
    assert cache.begin_read([key(1)], READ_LOCK_TTL_NS + 1) is None


def test_unlock_never_goes_below_zero() -> None:
    cache = cache_of(10)
    store(cache, 1)
    lock(cache, 1, readers=2)
    cache.unlock([key(1), key(2)], count=5, now_ns=0)
    lock(cache, 1, readers=1)
    assert cache.begin_read([key(1)], 0) is not None
    assert cache.begin_read([key(1)], 0) is None


def test_an_expired_reservation_can_be_taken_again_and_its_bytes_stay_until_the_writer_ends() -> (
    None
):
    cache = cache_of(10)
    late = reserve(cache, 1, now_ns=0).only_slots()
    assert cache.counts(WRITE_TTL_NS).write_locked == 0
    second = reserve(cache, 1, now_ns=WRITE_TTL_NS).only_slots()
    assert late[0].offset != second[0].offset
    cache.commit(late)
    assert stored(cache, 1) == []
    cache.commit(second)
    assert stored(cache, 1) == [1]
    assert used_pages(cache) == 1


def test_clear_spares_what_is_held() -> None:
    cache = cache_of(10)
    store(cache, 1, 2)
    lock(cache, 1)
    reserved = reserve(cache, 3)
    cache.clear(force=False, now_ns=0)
    assert stored(cache, 1, 2) == [1]
    cache.commit(reserved.only_slots())
    assert stored(cache, 3) == [3]


def test_clear_by_force_spares_only_bytes_in_use() -> None:
    cache = cache_of(10)
    store(cache, 1, 2)
    lock(cache, 1, 2)
    reading = cache.begin_read([key(1)], 0)
    assert reading is not None
    writing = reserve(cache, 3).only_slots()
    cache.clear(force=True, now_ns=0)
    assert stored(cache, 1, 2, 3) == []
    assert used_pages(cache) == 2
    assert {slot.offset for slot in store(cache, 4, 5).only_slots()}.isdisjoint(
        {reading[0].offset, writing[0].offset}
    )
    cache.end_read(reading)
    cache.commit(writing)
    assert stored(cache, 1, 3) == []
    assert used_pages(cache) == 2


def test_a_running_read_counts_as_a_lock() -> None:
    cache = cache_of(10)
    store(cache, 1)
    lock(cache, 1)
    slots = cache.begin_read([key(1)], 0)
    assert slots is not None
    assert cache.counts(0).read_locked == 1
    cache.clear(force=False, now_ns=0)
    assert stored(cache, 1) == [1]
    cache.end_read(slots)
    assert cache.counts(0).read_locked == 0


def test_counts_add_up() -> None:
    cache = cache_of(10)
    store(cache, 1)
    reserve(cache, 2)
    counts = cache.counts(0)
    assert (counts.objects, counts.reserved, counts.write_locked, counts.read_locked) == (
        2,
        1,
        1,
        0,
    )
    assert (counts.used_bytes, counts.capacity_bytes) == (2 * ALIGN_BYTES, 10 * ALIGN_BYTES)


def test_totals_say_why_objects_went() -> None:
    cache = cache_of(10)
    store(cache, *range(10))
    store(cache, 100)
    lock(cache, 0)
    cache.clear(force=False, now_ns=0)
    assert reserve(cache, *range(200, 211)).refused
    reserve(cache, 300)
    cache.expire(WRITE_TTL_NS)
    totals = cache.totals()
    assert (totals.stored_objects, totals.stored_bytes) == (11, 11)
    assert (totals.evicted_objects, totals.evicted_bytes) == (2, 2)
    assert totals.cleared_objects == 8
    assert (totals.refused_reservations, totals.expired_reservations) == (1, 1)


class WriteBack:
    """A full cache that hands over what it evicts."""

    def __init__(self, pages: int = 10) -> None:
        self.cache = cache_of(pages)
        self.handed: list[ObjectSlot] = []
        self.cache.before_eviction(self.handed.append)
        store(self.cache, *range(pages))

    def ask(self, *chunks: int, may_wait: bool = True) -> Reservation:
        keys = [key(chunk) for chunk in chunks]
        return self.cache.reserve(keys, (1,), 0, may_wait=may_wait)

    def end(self, *, backed: bool = True) -> None:
        self.cache.written_back(self.handed.pop(0), backed=backed, now_ns=0)


def test_an_object_is_there_until_it_is_written_back() -> None:
    stage = WriteBack()
    assert stage.ask(100).pending
    assert [slot.key for slot in stage.handed] == [key(9), key(8)]
    assert stored(stage.cache, *range(10)) == list(range(10))
    assert stage.cache.totals().evicted_objects == 0
    stage.end()
    assert stored(stage.cache, *range(10)) == list(range(9))
    assert len(stage.ask(100).slots) == 1
    assert stage.cache.totals().evicted_objects == 1
    assert stage.cache.totals().refused_reservations == 0


def test_asking_again_hands_over_no_more() -> None:
    stage = WriteBack()
    for _ in range(3):
        assert stage.ask(100, 101, 102).pending
    assert len(stage.handed) == 2
    stage.end()
    stage.end()
    assert stage.ask(100, 101, 102).pending
    assert len(stage.handed) == 1
    stage.end()
    assert len(stage.ask(100, 101, 102).slots) == 3


def test_who_does_not_wait_is_refused_and_counted() -> None:
    stage = WriteBack()
    assert stage.ask(100, may_wait=False).refused
    assert stage.cache.totals().refused_reservations == 1


def test_what_can_never_fit_is_refused_at_once() -> None:
    stage = WriteBack()
    assert stage.ask(*range(100, 111)).refused
    assert stage.handed == []


def test_what_is_locked_meanwhile_stays_and_goes_at_once_the_next_time() -> None:
    stage = WriteBack(pages=2)
    assert stage.ask(100).pending
    lock(stage.cache, 1)
    stage.end()
    assert stored(stage.cache, 0, 1) == [0, 1]
    stage.cache.unlock([key(1)], count=1, now_ns=0)
    stage.cache.touch([key(0)])
    assert len(stage.ask(100).slots) == 1
    assert stored(stage.cache, 0, 1) == [0]
    assert stage.handed == []


def test_what_no_tier_takes_goes_all_the_same() -> None:
    stage = WriteBack(pages=2)
    assert stage.ask(100).pending
    stage.end(backed=False)
    assert stored(stage.cache, 0, 1) == [0]


def test_what_is_cleared_by_force_meanwhile_keeps_its_bytes_until_it_is_written() -> None:
    stage = WriteBack(pages=2)
    assert stage.ask(100).pending
    stage.cache.clear(force=True, now_ns=0)
    assert (stored(stage.cache, 0, 1), used_pages(stage.cache)) == ([], 1)
    stage.end()
    assert used_pages(stage.cache) == 0
    totals = stage.cache.totals()
    assert (totals.cleared_objects, totals.evicted_objects) == (2, 0)


def test_what_a_tier_lacks_is_listed_oldest_first() -> None:
    stage = WriteBack(pages=4)
    stage.cache.clear(force=False, now_ns=0)
    store(stage.cache, 1)
    store(stage.cache, 2)
    stage.cache.commit(stage.ask(3).only_slots(), backed=True)
    assert [slot.key for slot in stage.cache.unbacked()] == [key(1), key(2)]


def test_another_policy() -> None:
    policy = CachePolicy(read_ttl_ns=5, write_ttl_ns=7, watermark=0.5, eviction_ratio=1.0)
    cache = Cache(4 * ALIGN_BYTES, policy)
    first = reserve(cache, 1, 2).only_slots()
    assert [cache.counts(t).write_locked for t in (6, 7)] == [2, 0]
    cache.commit(first)
    lock(cache, 1)
    assert [cache.counts(t).read_locked for t in (4, 5)] == [1, 0]
    reserve(cache, 3, now_ns=6)  # half of the memory is used: all that nobody holds goes
    assert cache.totals().evicted_objects == 2

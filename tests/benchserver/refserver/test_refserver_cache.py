"""The index: visibility, locks, deadlines, eviction, refusal; time is an argument."""

from __future__ import annotations

import pytest

from benchserver.refserver.cache import (
    READ_LOCK_TTL_NS,
    WRITE_TTL_NS,
    Cache,
    ObjectKey,
    Reservation,
)
from benchserver.refserver.config import ALIGN_BYTES


def key(chunk: int, rank: int = 0, world_size: int = 1, salt: str = "") -> ObjectKey:
    return ObjectKey(chunk.to_bytes(32, "big"), "m", world_size, rank, salt)


def cache_of(pages: int) -> Cache:
    return Cache(pages * ALIGN_BYTES)


def reserve(cache: Cache, *chunks: int, now_ns: int = 0) -> Reservation:
    return cache.reserve([key(chunk) for chunk in chunks], 1, now_ns)


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
    assert stored(cache, *range(10)) == [2, 3, 4, 5, 6, 7, 8, 9]


def test_below_the_watermark_nothing_is_evicted() -> None:
    cache = cache_of(10)
    store(cache, *range(7))
    store(cache, 100)
    assert stored(cache, *range(7)) == list(range(7))


def test_use_protects_from_eviction() -> None:
    cache = cache_of(10)
    store(cache, *range(10))
    lock(cache, 0, 1, readers=1)
    cache.unlock([key(0), key(1)], count=1, now_ns=0)
    store(cache, 100)
    assert stored(cache, 0, 1, 2, 3, 4) == [0, 1, 4]


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
    cache.commit(cache.reserve([row[rank] for rank in ranks], 1, 0).only_slots())
    assert cache.lock_prefix([row], readers=1, now_ns=0) == 0
    assert cache.counts(0).read_locked == 0
    cache.commit(cache.reserve(row, 1, 0).only_slots())
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

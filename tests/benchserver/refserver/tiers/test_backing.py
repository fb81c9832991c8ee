"""L2 behind L1: what is written when, promoted, or a shorter hit; that no lock or slot is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from benchserver.clock import VirtualClock, idle
from benchserver.refserver.journal import Journal
from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.options import L2Write
from benchserver.refserver.store.arena import Arena, open_private
from benchserver.refserver.store.cache import Cache
from benchserver.refserver.tiers import backing
from benchserver.refserver.tiers.backing import Backing
from benchserver.refserver.tiers.tier import Tier, TierError
from tests.benchserver.refserver.tiers.reference import DictTier

NBYTES = 4096
SIZES = (NBYTES, NBYTES)
KEYS = tuple(ObjectKey(bytes([n]) * 32, "m", 1, 0, "") for n in range(6))
ROWS = tuple((key,) for key in KEYS)


class Broken(DictTier):
    """A tier whose reads of some keys fail, or never end, and whose writes wait for a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: set[ObjectKey] = set()
        self.stuck: set[ObjectKey] = set()
        self.probe_slowly = False
        self.gate: asyncio.Event | None = None

    async def probe(self, keys: Sequence[ObjectKey]) -> int:
        if self.probe_slowly:
            await asyncio.sleep(0.001)
        return await super().probe(keys)

    async def write(self, key: ObjectKey, data: memoryview) -> None:
        if self.gate is not None:
            await self.gate.wait()
        await super().write(key, data)

    async def read(self, key: ObjectKey, out: memoryview, *, prefetch: bool = False) -> None:
        if key in self.stuck:
            await asyncio.Event().wait()
        if key in self.failing:
            out[:] = b"\xff" * len(out)
            raise TierError("torn")
        await super().read(key, out, prefetch=prefetch)


class Stage:
    """A cache, its arena, a tier that can break, and what joins them."""

    def __init__(self, slots: int = 16, write: L2Write = "through") -> None:
        clock = VirtualClock()
        self.write = write
        self.lines: list[str] = []
        self.arena: Arena = open_private(slots * NBYTES)
        self.cache = Cache(self.arena.nbytes)
        self.tier = Broken()
        tiers: Sequence[Tier] = (self.tier,)
        journal = Journal(clock, self.lines.append)
        self.backing = Backing(
            tiers, cache=self.cache, arena=self.arena, clock=clock, journal=journal, write=write
        )

    async def store(self, keys: Sequence[ObjectKey]) -> None:
        """Store chunks whose bytes are their key's, and wait for the tier."""
        reservation = await self.backing.reserve(keys, SIZES)
        for slot in reservation.only_slots():
            self.arena.view(slot.offset, NBYTES)[:] = slot.key.chunk_hash[0]
        self.cache.commit(reservation.only_slots())
        self.backing.stored(reservation.only_slots())
        if self.write == "through":
            await self.backing.drain()

    async def look(self, rows: Sequence[Sequence[ObjectKey]] = ROWS) -> int:
        return await self.backing.lock_prefix(rows, group_bytes=(NBYTES,), readers=1)

    def byte_of(self, key: ObjectKey) -> int:
        """Read one locked object as a RETRIEVE would; every byte of it must be the same."""
        slots = self.cache.begin_read((key,), 0)
        assert slots is not None
        data = self.arena.view(slots[0].offset, NBYTES)
        assert (data == data[0]).all()
        self.cache.end_read(slots)
        return int(data[0])

    @property
    def held(self) -> int:
        """Return how many objects are locked, read or reserved."""
        counts = self.cache.counts(0)
        return counts.read_locked + counts.reserved


@asynccontextmanager
async def staged(slots: int = 16, write: L2Write = "through") -> AsyncIterator[Stage]:
    """A stage with room for so many objects in L1."""
    stage = Stage(slots, write)
    yield stage
    await stage.backing.close()
    stage.arena.close()


@pytest_asyncio.fixture
async def stage() -> AsyncIterator[Stage]:
    """Give a stage whose L1 holds all that is stored, and writes it through."""
    async with staged() as stage:
        yield stage


@pytest.mark.asyncio
async def test_what_l1_lost_is_promoted_and_right(stage: Stage) -> None:
    await stage.store(KEYS)
    stage.cache.clear(force=True, now_ns=0)
    assert await stage.look() == len(KEYS)
    assert [stage.byte_of(key) for key in KEYS] == [0, 1, 2, 3, 4, 5]
    assert stage.held == 0


@pytest.mark.asyncio
async def test_a_gap_in_both_ends_the_hit(stage: Stage) -> None:
    await stage.store((*KEYS[:2], *KEYS[3:]))
    stage.cache.clear(force=True, now_ns=0)
    assert await stage.look() == 2
    stage.cache.unlock(KEYS[:2], count=1, now_ns=0)
    assert stage.held == 0


@pytest.mark.asyncio
async def test_a_failed_read_shortens_the_hit_and_publishes_nothing(stage: Stage) -> None:
    await stage.store(KEYS)
    stage.cache.clear(force=True, now_ns=0)
    stage.tier.failing = {KEYS[3]}
    assert await stage.look() == 3
    assert not stage.cache.has(KEYS[3])
    assert "torn" in "".join(stage.lines)
    stage.cache.unlock(KEYS, count=1, now_ns=0)
    assert stage.held == 0


@pytest.mark.asyncio
async def test_a_cancelled_lookup_keeps_no_lock_and_no_reservation(stage: Stage) -> None:
    await stage.store(KEYS)
    stage.cache.clear(force=True, now_ns=0)
    stage.tier.stuck = {KEYS[4]}
    look = asyncio.ensure_future(stage.look())
    await idle()
    assert stage.held > 0
    look.cancel()
    await asyncio.gather(look, return_exceptions=True)
    assert stage.held == 0


@pytest.mark.asyncio
async def test_all_ranks_of_a_chunk_or_none(stage: Stage) -> None:
    ranks = tuple(ObjectKey(bytes([9]) * 32, "m", 2, rank, "") for rank in range(2))

    await stage.store(ranks)
    stage.cache.clear(force=True, now_ns=0)
    stage.tier.failing = {ranks[1]}
    assert await stage.look((ranks,)) == 0
    assert stage.held == 0
    stage.tier.failing = set()
    assert await stage.look((ranks,)) == 1


@pytest.mark.asyncio
async def test_an_l1_too_small_for_the_prefix_promotes_what_fits() -> None:
    async with staged(slots=4) as stage:
        await stage.store(KEYS[:3])
        await stage.store(KEYS[3:])
        stage.cache.clear(force=True, now_ns=0)
        hits = await stage.look()
        assert 0 < hits < len(KEYS)
        assert [stage.byte_of(key) for key in KEYS[:hits]] == list(range(hits))
        assert stage.held == 0


@pytest.mark.asyncio
async def test_two_lookups_of_the_same_chunks_share_one_read(stage: Stage) -> None:
    await stage.store(KEYS)
    stage.cache.clear(force=True, now_ns=0)
    hits = await asyncio.gather(stage.look(), stage.look())
    assert list(hits) == [len(KEYS), len(KEYS)]
    assert stage.tier.stats.hits == len(KEYS)
    stage.cache.unlock(KEYS, count=2, now_ns=0)
    assert stage.held == 0


@pytest.mark.asyncio
async def test_a_failed_write_is_told_and_holds_nothing(stage: Stage) -> None:
    await stage.tier.close()
    await stage.store(KEYS[:1])
    assert "was not written" in "".join(stage.lines)
    assert stage.held == 0


@pytest.mark.asyncio
async def test_groups_are_promoted_with_their_own_sizes(stage: Stage) -> None:
    groups = tuple(ObjectKey(bytes([7]) * 32, "m", 1, 0, "", group) for group in range(2))
    sizes = (NBYTES, 3 * NBYTES)

    slots = stage.cache.reserve(groups, sizes, 0).only_slots()
    stage.cache.commit(slots)
    stage.backing.stored(slots)
    await stage.backing.drain()
    stage.cache.clear(force=True, now_ns=0)
    assert await stage.backing.lock_prefix((groups,), group_bytes=sizes, readers=1) == 1
    read = stage.cache.begin_read(groups, 0)
    assert read is not None
    assert [slot.nbytes for slot in read] == list(sizes)
    stage.cache.end_read(read)
    assert stage.backing.totals().promoted_chunks == 1


@pytest.mark.asyncio
async def test_a_chunk_with_one_group_missing_everywhere_is_no_hit(stage: Stage) -> None:
    groups = tuple(ObjectKey(bytes([7]) * 32, "m", 1, 0, "", group) for group in range(2))

    await stage.store(groups[:1])
    assert await stage.backing.lock_prefix((groups,), group_bytes=(1, 1), readers=1) == 0
    assert stage.held == 0


@pytest.mark.asyncio
async def test_a_lookup_waits_for_another_that_is_still_probing(stage: Stage) -> None:
    await stage.store(KEYS)
    stage.cache.clear(force=True, now_ns=0)
    stage.tier.probe_slowly = True
    hits = await asyncio.gather(stage.look(), stage.look())
    assert list(hits) == [len(KEYS), len(KEYS)]
    stage.cache.unlock(KEYS, count=2, now_ns=0)


@pytest.mark.asyncio
async def test_what_is_left_of_a_promoted_sequence_is_a_prefix() -> None:
    async with staged(slots=5) as stage:
        await stage.store(KEYS[:4])
        stage.cache.clear(force=True, now_ns=0)
        assert await stage.look(ROWS[:4]) == 4
        stage.cache.unlock(KEYS[:4], count=1, now_ns=0)
        await stage.store(KEYS[4:5])
        assert [stage.cache.has(key) for key in KEYS[:4]] == [True, True, True, False]


@pytest.mark.asyncio
async def test_what_a_row_has_is_not_evicted_for_what_it_lacks() -> None:
    groups = tuple(ObjectKey(bytes([7]) * 32, "m", 1, 0, "", group) for group in range(2))

    async with staged(slots=3) as stage:
        for key in (groups[0], *KEYS[:2]):
            await stage.store((key,))
        stage.tier.objects[groups[1]] = bytes(NBYTES)
        assert await stage.backing.lock_prefix((groups,), group_bytes=SIZES, readers=1) == 1
        stage.cache.unlock(groups, count=1, now_ns=0)


@pytest.mark.asyncio
async def test_totals_count_what_the_tiers_did(stage: Stage) -> None:
    await stage.store(KEYS)
    stage.cache.clear(force=True, now_ns=0)
    stage.tier.failing = {KEYS[2]}
    assert await stage.look() == 2
    stage.cache.unlock(KEYS, count=1, now_ns=0)
    totals = stage.backing.totals()
    assert (totals.written_objects, totals.failed_writes) == (len(KEYS), 0)
    assert (totals.read_objects, totals.failed_reads) == (2, 1)


# Written as they are evicted.


@pytest.mark.asyncio
async def test_nothing_is_written_before_l1_is_full() -> None:
    async with staged(write="evict") as stage:
        await stage.store(KEYS)
        assert stage.tier.objects == {}


@pytest.mark.asyncio
async def test_what_is_evicted_is_found_in_the_tier() -> None:
    async with staged(slots=4, write="evict") as stage:
        for key in KEYS:
            await stage.store((key,))
        evicted = stage.cache.totals().evicted_objects
        assert evicted == len(stage.tier.objects) > 0
        for row in ROWS:
            assert await stage.look((row,)) == 1
            assert stage.byte_of(row[0]) == row[0].chunk_hash[0]


@pytest.mark.asyncio
async def test_a_store_waits_for_the_write_back_that_makes_its_room() -> None:
    async with staged(slots=2, write="evict") as stage:
        await stage.store(KEYS[:2])
        stage.tier.gate = asyncio.Event()
        late = asyncio.ensure_future(stage.store(KEYS[2:3]))
        await idle()
        assert not late.done()
        # Found in L1 as long as no tier has it.
        assert stage.cache.has(KEYS[0])
        assert stage.cache.has(KEYS[1])
        stage.tier.gate.set()
        await late
        assert stage.cache.has(KEYS[2])
        assert len(stage.tier.objects) == 1
        assert stage.cache.totals().refused_reservations == 0


@pytest.mark.asyncio
async def test_a_store_waits_no_longer_than_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backing, "ROOM_WITHIN_S", 0.05)

    async with staged(slots=2, write="evict") as stage:
        await stage.store(KEYS[:2])
        stage.tier.gate = asyncio.Event()
        refused = await stage.backing.reserve(KEYS[2:3], (NBYTES,))
        assert refused.refused
        assert stage.cache.totals().refused_reservations == 1
        stage.tier.gate.set()
        await stage.backing.drain()
        assert len(stage.tier.objects) == 1


@pytest.mark.asyncio
async def test_a_store_cancelled_while_it_waits_reserves_nothing() -> None:
    async with staged(slots=2, write="evict") as stage:
        await stage.store(KEYS[:2])
        stage.tier.gate = asyncio.Event()
        waiting = asyncio.ensure_future(stage.backing.reserve(KEYS[2:3], (NBYTES,)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        stage.tier.gate.set()
        await stage.backing.drain()
        assert stage.held == 0


@pytest.mark.asyncio
async def test_many_stores_wait_together_and_none_is_lost() -> None:
    keys = [ObjectKey(bytes([n]) * 32, "m", 1, 0, "") for n in range(40)]

    async with staged(slots=4, write="evict") as stage:
        await asyncio.gather(*(stage.store((key,)) for key in keys))
        for key in keys:
            assert await stage.look(((key,),)) == 1
            assert stage.byte_of(key) == key.chunk_hash[0]
        assert stage.cache.totals().refused_reservations == 0


@pytest.mark.asyncio
async def test_what_a_failing_tier_refuses_is_told_and_l1_goes_on() -> None:
    async with staged(slots=2, write="evict") as stage:
        await stage.store(KEYS[:2])
        await stage.tier.close()
        await stage.store(KEYS[2:3])
        assert stage.cache.has(KEYS[2])
        assert stage.backing.totals().failed_writes == 1
        assert stage.cache.totals().evicted_objects == 1
        assert "was not written" in "".join(stage.lines)


@pytest.mark.asyncio
async def test_a_promoted_chunk_is_not_written_again() -> None:
    async with staged(slots=2, write="evict") as stage:
        for key in KEYS[:3]:
            await stage.store((key,))
        for row in ROWS[:3] * 3:
            assert await stage.look((row,)) == 1
            assert stage.byte_of(row[0]) == row[0].chunk_hash[0]
        totals = stage.backing.totals()
        assert totals.promoted_chunks > 3
        assert totals.written_objects == 3


@pytest.mark.asyncio
async def test_the_end_writes_what_only_l1_has() -> None:
    async with staged(write="evict") as stage:
        await stage.store(KEYS)
        await stage.backing.close()
        assert {key: data[0] for key, data in stage.tier.objects.items()} == {
            key: key.chunk_hash[0] for key in KEYS
        }
        assert stage.held == 0


@pytest.mark.asyncio
async def test_a_clear_writes_nothing_back() -> None:
    async with staged(write="evict") as stage:
        await stage.store(KEYS)
        stage.cache.clear(force=False, now_ns=0)
        await stage.backing.close()
        assert stage.tier.objects == {}


@pytest.mark.asyncio
async def test_an_end_that_takes_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backing, "FINISH_WITHIN_S", 0.05)

    async with staged(write="evict") as stage:
        await stage.store(KEYS[:3])
        stage.tier.gate = asyncio.Event()
        await stage.backing.close()
        assert "3 objects are not written" in "".join(stage.lines)
        assert stage.held == 0


@pytest.mark.asyncio
async def test_a_tier_that_fails_leaves_the_chunk_to_the_next(stage: Stage) -> None:
    far = Broken()
    stage.backing.tiers = (stage.tier, far)
    await stage.store(KEYS[:2])
    stage.cache.clear(force=True, now_ns=0)
    stage.tier.failing.add(KEYS[0])
    assert await stage.look() == 2
    assert [stage.byte_of(key) for key in KEYS[:2]] == [0, 1]
    assert stage.backing.totals().failed_reads == 1
    far.failing.add(KEYS[0])
    stage.cache.clear(force=True, now_ns=0)
    assert await stage.look() == 0

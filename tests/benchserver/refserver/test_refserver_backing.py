"""L2 behind L1: what is promoted, what shortens a hit, and that no lock or slot is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from benchserver.clock import VirtualClock
from benchserver.refserver.arena import Arena, open_private
from benchserver.refserver.backing import Backing
from benchserver.refserver.cache import Cache, ObjectKey
from benchserver.refserver.journal import Journal
from benchserver.refserver.tiers.tier import Tier, TierError
from tests.benchserver.refserver.tiers.reference import DictTier

NBYTES = 4096
KEYS = tuple(ObjectKey(bytes([n]) * 32, "m", 1, 0, "") for n in range(6))
ROWS = tuple((key,) for key in KEYS)


class Broken(DictTier):
    """A tier whose reads of some keys fail, or never end."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: set[ObjectKey] = set()
        self.stuck: set[ObjectKey] = set()

    async def read(self, key: ObjectKey, out: memoryview, *, prefetch: bool = False) -> None:
        if key in self.stuck:
            await asyncio.Event().wait()
        if key in self.failing:
            out[:] = b"\xff" * len(out)
            raise TierError("torn")
        await super().read(key, out, prefetch=prefetch)


class Stage:
    """A cache, its arena, a tier that can break, and what joins them."""

    def __init__(self, slots: int = 16) -> None:
        clock = VirtualClock()
        self.lines: list[str] = []
        self.arena: Arena = open_private(slots * NBYTES)
        self.cache = Cache(self.arena.nbytes)
        self.tier = Broken()
        tiers: Sequence[Tier] = (self.tier,)
        journal = Journal(clock, self.lines.append)
        self.backing = Backing(
            tiers, cache=self.cache, arena=self.arena, clock=clock, journal=journal
        )

    async def store(self, keys: Sequence[ObjectKey]) -> None:
        """Store chunks whose bytes are their key's, and wait for the tier."""
        reservation = self.cache.reserve(keys, NBYTES, 0)
        for slot in reservation.only_slots():
            self.arena.view(slot.offset, NBYTES)[:] = slot.key.chunk_hash[0]
        self.cache.commit(reservation.only_slots())
        self.backing.stored(reservation.only_slots())
        await self.backing.drain()

    async def look(self, rows: Sequence[Sequence[ObjectKey]] = ROWS) -> int:
        return await self.backing.lock_prefix(rows, nbytes=NBYTES, readers=1)

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


def play(scene: Callable[[Stage], object], slots: int = 16) -> None:
    async def run() -> None:
        stage = Stage(slots)
        await scene(stage)  # type: ignore[misc]
        await stage.backing.close()
        stage.arena.close()

    asyncio.run(run())


def test_what_l1_lost_is_promoted_and_right() -> None:
    async def scene(stage: Stage) -> None:
        await stage.store(KEYS)
        stage.cache.clear(force=True, now_ns=0)
        assert await stage.look() == len(KEYS)
        assert [stage.byte_of(key) for key in KEYS] == [0, 1, 2, 3, 4, 5]
        assert stage.held == 0

    play(scene)


def test_a_gap_in_both_ends_the_hit() -> None:
    async def scene(stage: Stage) -> None:
        await stage.store((*KEYS[:2], *KEYS[3:]))
        stage.cache.clear(force=True, now_ns=0)
        assert await stage.look() == 2
        stage.cache.unlock(KEYS[:2], count=1, now_ns=0)
        assert stage.held == 0

    play(scene)


def test_a_failed_read_shortens_the_hit_and_publishes_nothing() -> None:
    async def scene(stage: Stage) -> None:
        await stage.store(KEYS)
        stage.cache.clear(force=True, now_ns=0)
        stage.tier.failing = {KEYS[3]}
        assert await stage.look() == 3
        assert not stage.cache.has(KEYS[3])
        assert "torn" in "".join(stage.lines)
        stage.cache.unlock(KEYS, count=1, now_ns=0)
        assert stage.held == 0

    play(scene)


def test_a_cancelled_lookup_keeps_no_lock_and_no_reservation() -> None:
    async def scene(stage: Stage) -> None:
        await stage.store(KEYS)
        stage.cache.clear(force=True, now_ns=0)
        stage.tier.stuck = {KEYS[4]}
        look = asyncio.ensure_future(stage.look())
        for _ in range(50):
            await asyncio.sleep(0)
        assert stage.held > 0
        look.cancel()
        await asyncio.gather(look, return_exceptions=True)
        assert stage.held == 0

    play(scene)


def test_all_ranks_of_a_chunk_or_none() -> None:
    ranks = tuple(ObjectKey(bytes([9]) * 32, "m", 2, rank, "") for rank in range(2))

    async def scene(stage: Stage) -> None:
        await stage.store(ranks)
        stage.cache.clear(force=True, now_ns=0)
        stage.tier.failing = {ranks[1]}
        assert await stage.look((ranks,)) == 0
        assert stage.held == 0
        stage.tier.failing = set()
        assert await stage.look((ranks,)) == 1

    play(scene)


def test_an_l1_too_small_for_the_prefix_promotes_what_fits() -> None:
    async def scene(stage: Stage) -> None:
        await stage.store(KEYS[:3])
        await stage.store(KEYS[3:])
        stage.cache.clear(force=True, now_ns=0)
        hits = await stage.look()
        assert 0 < hits < len(KEYS)
        assert [stage.byte_of(key) for key in KEYS[:hits]] == list(range(hits))
        assert stage.held == 0

    play(scene, slots=4)


def test_two_lookups_of_the_same_chunks_share_one_read() -> None:
    async def scene(stage: Stage) -> None:
        await stage.store(KEYS)
        stage.cache.clear(force=True, now_ns=0)
        hits = await asyncio.gather(stage.look(), stage.look())
        assert list(hits) == [len(KEYS), len(KEYS)]
        assert stage.tier.stats.hits == len(KEYS)
        stage.cache.unlock(KEYS, count=2, now_ns=0)
        assert stage.held == 0

    play(scene)


def test_a_failed_write_is_told_and_holds_nothing() -> None:
    async def scene(stage: Stage) -> None:
        await stage.tier.close()
        await stage.store(KEYS[:1])
        assert "was not written" in "".join(stage.lines)
        assert stage.held == 0

    play(scene)

"""L2 behind L1: what is written to the tiers and when; lookups promote what only L2 holds.

Belongs to the event loop; bytes move in the tiers.  A slot that a tier reads from or writes to is
held, so that eviction leaves it alone.  A failed or missing L2 read shortens the hit: what is not
wholly read is never committed.

`through`: every stored object is written at once, in the background.  `evict`: an object is
written when L1 wants its memory, first come, first served; it is found in L1 until every tier has
it or has refused it, and the store that wants the memory waits for it, `ROOM_WITHIN_S` at most.
What only L1 has is written when the server stops.  What no tier takes is logged, and evicted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from benchserver.clock import NS_PER_S, Clock
from benchserver.refserver.journal import Journal
from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.options import L2Write
from benchserver.refserver.store.arena import Arena
from benchserver.refserver.store.cache import Cache
from benchserver.refserver.store.slots import ObjectSlot, Reservation
from benchserver.refserver.tiers.tier import Tier, TierError

ObjectRow = Sequence[ObjectKey]
"""The objects of one chunk: of each KV rank, one a kernel group."""

ROOM_WITHIN_S = 5
"""How long a store waits for write-backs; then it is refused, as one that finds L1 full."""

FINISH_WITHIN_S = 30
"""How long the end of the server waits for the tiers; what they do not have by then is logged."""

WRITE_BACKS_AT_ONCE = 8
"""More would only queue in the tiers, and a tier with a capacity counts all that queue at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackingTotals:
    """What the tiers did since the start, one count an object and tier.

    A read that finds no sound object is a failed one.  promoted: chunks, of all ranks, that a
    lookup found in a tier and brought into L1.
    """

    written_objects: int = 0
    failed_writes: int = 0
    read_objects: int = 0
    failed_reads: int = 0
    promoted_chunks: int = 0


class Backing:
    """The tiers of one server, nearest first."""

    def __init__(
        self,
        tiers: Sequence[Tier],
        *,
        cache: Cache,
        arena: Arena,
        clock: Clock,
        journal: Journal,
        write: L2Write = "through",
    ) -> None:
        self.tiers = tuple(tiers)
        """Fault switches put others around them, and take those out again."""
        self._cache = cache
        self._arena = arena
        self._clock = clock
        self._journal = journal
        self._write_through = write == "through"
        self._writes: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(WRITE_BACKS_AT_ONCE)
        self._progress: asyncio.Future[None] | None = None
        self._fetching: dict[ObjectKey, asyncio.Future[None]] = {}
        self._totals = BackingTotals()
        if not self._write_through:
            cache.before_eviction(lambda slot: self._start(self._write_back(slot)))

    def totals(self) -> BackingTotals:
        """Return the counters as they are now."""
        return self._totals

    def stored(self, slots: Sequence[ObjectSlot]) -> None:
        """Take note of committed slots: written through, they go to every tier from here on."""
        if self._write_through:
            for slot in slots:
                self._cache.hold((slot,))
                self._start(self._write_at_once(slot))

    async def reserve(self, keys: Sequence[ObjectKey], group_bytes: Sequence[int]) -> Reservation:
        """Reserve as the cache does, after the write-backs that make the room."""
        deadline_ns = self._clock.now_ns() + ROOM_WITHIN_S * NS_PER_S
        may_wait = True
        while True:
            now_ns = self._clock.now_ns()
            reservation = self._cache.reserve(keys, group_bytes, now_ns, may_wait=may_wait)
            if not reservation.pending:
                return reservation
            may_wait = await self._progress_within((deadline_ns - now_ns) / NS_PER_S)

    async def lock_prefix(
        self, rows: Sequence[ObjectRow], *, group_bytes: Sequence[int], readers: int
    ) -> int:
        """Lock the leading rows that L1 or a tier holds, promoting them; return how many.

        `group_bytes` holds the size of an object for each object group, or nothing if it is not
        known: then L1 alone counts.
        """
        locked = 0
        try:
            while locked < len(rows):
                locked += self._lock(rows[locked:], readers)
                if locked == len(rows) or not group_bytes:
                    break
                if not await self._promote(rows[locked], group_bytes):
                    break
                if not self._lock(rows[locked : locked + 1], readers):
                    break  # evicted again at once: L1 has no room for the whole prefix
                locked += 1
        except asyncio.CancelledError:
            for row in rows[:locked]:
                self._cache.unlock(row, count=readers, now_ns=self._clock.now_ns())
            raise
        self._cache.touch([key for row in rows[:locked] for key in row])
        return locked

    def _lock(self, rows: Sequence[ObjectRow], readers: int) -> int:
        return self._cache.lock_prefix(rows, readers=readers, now_ns=self._clock.now_ns())

    async def _promote(self, row: ObjectRow, group_bytes: Sequence[int]) -> bool:
        """Bring the row's missing objects into L1; tells whether all are there now."""
        missing = await self._missing(row)
        if not missing:
            return True
        self._cache.touch(row)  # the others of the row must not go to make room for these
        with self._claimed(missing):
            for tier in self.tiers:
                with suppress(TierError):
                    found = await tier.probe(missing) == len(missing)
                    if found and await self._read_all(tier, missing, group_bytes):
                        return True
        return False

    async def _missing(self, row: ObjectRow) -> list[ObjectKey]:
        """Return the row's objects that L1 lacks, once nobody else is fetching one of them."""
        while True:
            missing = [key for key in row if not self._cache.has(key)]
            others = {self._fetching[key] for key in missing if key in self._fetching}
            if not others:
                return missing
            await asyncio.wait(others)

    @contextmanager
    def _claimed(self, keys: Sequence[ObjectKey]) -> Iterator[None]:
        """Let others who want these objects wait for the end of the block."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._fetching.update(dict.fromkeys(keys, done))
        try:
            yield
        finally:
            for key in keys:
                del self._fetching[key]
            done.set_result(None)

    async def _read_all(
        self, tier: Tier, keys: Sequence[ObjectKey], group_bytes: Sequence[int]
    ) -> bool:
        reservation = await self.reserve(keys, group_bytes)
        slots = reservation.only_slots()
        if reservation.refused or len(slots) < len(keys):
            self._cache.abort(slots)
            return False
        whole = False
        try:
            results = await asyncio.gather(
                *(self._read(tier, slot) for slot in slots), return_exceptions=True
            )
            failures = [error for error in results if error is not None]
            self._count(
                read_objects=len(slots) - len(failures),
                failed_reads=len(failures),
                promoted_chunks=not failures,
            )
            for error in failures:
                if not isinstance(error, TierError):
                    raise error
                self._journal.line(f"L2 {tier.name}: a chunk was not read: {error}")
            whole = not failures
        finally:
            if whole:
                self._cache.commit(slots, backed=True)
            else:
                self._cache.abort(slots)
        return whole

    async def _read(self, tier: Tier, slot: ObjectSlot) -> None:
        data = self._arena.view(slot.offset, slot.nbytes).data
        await tier.read(slot.key, data, prefetch=True)

    async def drain(self) -> None:
        """Wait for the writes that are under way."""
        if self._writes:
            await asyncio.wait(tuple(self._writes))

    async def close(self) -> None:
        """Write what only L1 has, finish the writes under way, and let the tiers go."""
        if not self._write_through:
            for slot in self._cache.unbacked():
                self._cache.hold((slot,))
                self._start(self._write_last(slot))
        finish = asyncio.ensure_future(self._finish())
        await asyncio.wait((finish,), timeout=FINISH_WITHIN_S)
        if not finish.done():
            self._journal.line(
                f"L2: the tiers were not done after {FINISH_WITHIN_S} s, "
                f"{len(self._writes)} objects are not written, and some may be lost that they "
                "had only queued"
            )
            late = (finish, *self._writes)
            for task in late:
                task.cancel()
            await asyncio.wait(late)
        for tier in self.tiers:
            await tier.close()

    async def _finish(self) -> None:
        await self.drain()
        for tier in self.tiers:
            with suppress(TierError):
                await tier.flush()

    def _start(self, writing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(writing)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _write_at_once(self, slot: ObjectSlot) -> None:
        """Write a held slot, and hold it no more."""
        try:
            slot.backed = await self._write(slot)
        finally:
            self._cache.end_read((slot,))

    async def _write_last(self, slot: ObjectSlot) -> None:
        """Write a held slot in its turn, and hold it no more."""
        async with self._turns:
            await self._write_at_once(slot)

    async def _write_back(self, slot: ObjectSlot) -> None:
        """Write a slot that is to be evicted, and evict it once a lookup finds it in a tier."""
        backed = False
        try:
            async with self._turns:
                backed = await self._write(slot)
                for tier in self.tiers:
                    with suppress(TierError):
                        await tier.flush()
        finally:
            self._cache.written_back(slot, backed=backed, now_ns=self._clock.now_ns())
            if self._progress is not None:
                self._progress.set_result(None)
                self._progress = None

    async def _write(self, slot: ObjectSlot) -> bool:
        """Write a slot to every tier; tells whether any has taken it."""
        writes = (self._write_to(tier, slot) for tier in self.tiers)
        # Cancelled, this returns when the last of them has let go of the memory.
        results = await asyncio.gather(*writes, return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException):
                raise error
        return any(results)

    async def _write_to(self, tier: Tier, slot: ObjectSlot) -> bool:
        try:
            await tier.write(slot.key, self._arena.view(slot.offset, slot.nbytes).data)
        except TierError as error:
            self._count(failed_writes=1)
            self._journal.line(f"L2 {tier.name}: a chunk was not written: {error}")
            return False
        self._count(written_objects=1)
        return True

    async def _progress_within(self, timeout_s: float) -> bool:
        """Wait until a write-back has ended; tells whether one has in time."""
        if self._progress is None:
            self._progress = asyncio.get_running_loop().create_future()
        done, _ = await asyncio.wait((self._progress,), timeout=max(0.0, timeout_s))
        return bool(done)

    def _count(self, **more: int) -> None:
        counted = {name: getattr(self._totals, name) + n for name, n in more.items()}
        self._totals = replace(self._totals, **counted)

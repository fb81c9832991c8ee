"""L2 behind L1: stored chunks are written through, lookups promote what only L2 holds.

Belongs to the event loop; bytes move in the tiers.  A slot that a tier reads from or writes to is
held, so that eviction leaves it alone.  A failed or missing L2 read shortens the hit: what is not
wholly read is never committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from benchserver.clock import Clock
from benchserver.refserver.arena import Arena
from benchserver.refserver.cache import Cache, ObjectKey, Slot
from benchserver.refserver.journal import Journal
from benchserver.refserver.tiers.tier import Tier, TierError

Row = Sequence[ObjectKey]
"""The objects of one chunk, one a KV rank."""


class Backing:
    """The tiers of one server, nearest first."""

    def __init__(
        self, tiers: Sequence[Tier], *, cache: Cache, arena: Arena, clock: Clock, journal: Journal
    ) -> None:
        self.tiers = tuple(tiers)
        self._cache = cache
        self._arena = arena
        self._clock = clock
        self._journal = journal
        self._writes: set[asyncio.Task[None]] = set()
        self._fetching: dict[ObjectKey, asyncio.Future[None]] = {}

    def stored(self, slots: Sequence[Slot]) -> None:
        """Write committed slots through to every tier, in the background."""
        for slot in slots:
            for tier in self.tiers:
                self._cache.hold((slot,))
                task = asyncio.ensure_future(self._write(tier, slot))
                self._writes.add(task)
                task.add_done_callback(self._writes.discard)

    async def _write(self, tier: Tier, slot: Slot) -> None:
        try:
            await tier.write(slot.key, self._arena.view(slot.offset, slot.nbytes).data)
        except TierError as error:
            self._journal.line(f"L2 {tier.name}: a chunk was not written: {error}")
        finally:
            self._cache.end_read((slot,))

    async def lock_prefix(self, rows: Sequence[Row], *, nbytes: int, readers: int) -> int:
        """Lock the leading rows that L1 or a tier holds, promoting them; return how many.

        `nbytes` is the size of an object, or 0 if it is not known: then L1 alone counts.
        """
        locked = 0
        try:
            while locked < len(rows):
                hits = self._lock(rows[locked:], readers)
                locked += hits
                if (
                    locked == len(rows)
                    or not nbytes
                    or not await self._promote(rows[locked], nbytes)
                ):
                    return locked
                if not self._lock(rows[locked : locked + 1], readers):
                    return locked  # evicted again at once: L1 has no room for the whole prefix
                locked += 1
        except asyncio.CancelledError:
            for row in rows[:locked]:
                self._cache.unlock(row, count=readers, now_ns=self._clock.now_ns())
            raise
        return locked

    def _lock(self, rows: Sequence[Row], readers: int) -> int:
        return self._cache.lock_prefix(rows, readers=readers, now_ns=self._clock.now_ns())

    async def _promote(self, row: Row, nbytes: int) -> bool:
        """Bring the row's missing objects into L1; tells whether all are there now."""
        missing = await self._missing(row)
        if not missing:
            return True
        for tier in self.tiers:
            with suppress(TierError):
                if await tier.probe(missing) == len(missing):
                    return await self._read_all(tier, missing, nbytes)
        return False

    async def _missing(self, row: Row) -> list[ObjectKey]:
        """Return the row's objects that L1 lacks, once nobody else is fetching one of them."""
        while True:
            missing = [key for key in row if not self._cache.has(key)]
            others = {self._fetching[key] for key in missing if key in self._fetching}
            if not others:
                return missing
            await asyncio.wait(others)

    async def _read_all(self, tier: Tier, keys: Sequence[ObjectKey], nbytes: int) -> bool:
        reservation = self._cache.reserve(keys, nbytes, self._clock.now_ns())
        slots = reservation.only_slots()
        if reservation.refused or len(slots) < len(keys):
            self._cache.abort(slots)
            return False
        ended = self._cache.abort
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._fetching.update(dict.fromkeys(keys, done))
        try:
            results = await asyncio.gather(
                *(self._read(tier, slot) for slot in slots), return_exceptions=True
            )
            for error in results:
                if isinstance(error, TierError):
                    self._journal.line(f"L2 {tier.name}: a chunk was not read: {error}")
                elif isinstance(error, BaseException):
                    raise error
            if not any(results):
                ended = self._cache.commit
        finally:
            ended(slots)
            for key in keys:
                del self._fetching[key]
            done.set_result(None)
        return ended == self._cache.commit

    async def _read(self, tier: Tier, slot: Slot) -> None:
        data = self._arena.view(slot.offset, slot.nbytes).data
        await tier.read(slot.key, data, prefetch=True)

    async def drain(self) -> None:
        """Wait for the writes that are under way."""
        if self._writes:
            await asyncio.wait(tuple(self._writes))

    async def close(self) -> None:
        """Finish the writes under way, and let the tiers go."""
        await self.drain()
        for tier in self.tiers:
            with suppress(TierError):
                await tier.flush()
            await tier.close()

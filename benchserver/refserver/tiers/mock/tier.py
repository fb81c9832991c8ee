"""`mock://`: a remote store that is not there, with the latency and throughput of one that is.

Objects lie in this process's memory.  What an operation costs is decided by two `Line`s, one for
each direction, and by the latency of probes:

- A probe costs the latency for each key that it asks for, one after the other, up to the first
  miss.  It waits for nothing else, and probes do not wait for each other.
- A read takes its bytes over the throughput, in turn with all others: prefetches before gets.
- A write is acknowledged when it is queued, its bytes copied; the object becomes visible, and the
  oldest go for it, when its bytes would have come through.  Reads and writes do not meet.

No task runs in the background: every call first applies the writes whose time has come, and each
caller sleeps until the moment at which its own operation ends.  Times are absolute, so lateness
does not add up.

Without data (`keeps_data` False) an object is its size: reads then give zeros.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

import numpy as np

from benchserver.clock import Clock
from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.tiers.config import MockConfig
from benchserver.refserver.tiers.lru import Lru
from benchserver.refserver.tiers.mock.blobs import Blob, Blobs
from benchserver.refserver.tiers.mock.line import Line, Rank, Transfer
from benchserver.refserver.tiers.threads import TierThreads
from benchserver.refserver.tiers.tier import (
    TierError,
    TierMissError,
    TierStats,
    check_size,
    closed_error,
    counted_read,
    counted_write,
)

MAX_QUEUED_BYTES = 256 << 20
"""Writes acknowledged and not yet through: a tenth of a second at usual throughput.  A
writer of more waits, and queued data does not take the memory of all."""

COPY_THREADS = 2
"""More do not copy faster than the memory does."""


@dataclass(slots=True, eq=False)
class _Stored:
    """An object: its size, and its bytes unless only sizes are kept."""

    nbytes: int
    blob: Blob | None


@dataclass(slots=True, eq=False)
class _Put:
    """A write on its way; `copied` is set when its bytes are here, or never will be."""

    key: ObjectKey
    stored: _Stored
    transfer: Transfer
    copied: asyncio.Event = field(default_factory=asyncio.Event)


class MockTier:
    """The store: an LRU of objects behind two lines and a latency."""

    name = "mock"

    def __init__(self, config: MockConfig, clock: Clock) -> None:
        self.verifiable = config.keeps_data
        self._config = config
        self._clock = clock
        self._open = True
        self._stats = TierStats(capacity_bytes=config.capacity_bytes)
        self._reads = Line(config.read_bytes_per_s)
        self._writes = Line(config.write_bytes_per_s)
        self._store: Lru[ObjectKey, _Stored] = Lru()
        self._puts: deque[_Put] = deque()
        self._queued_bytes = 0
        self._blobs = Blobs()
        self._threads = TierThreads(COPY_THREADS, "mock-tier-copy")

    @property
    def is_healthy(self) -> bool:
        """Say yes: there is nothing that could break."""
        return True

    @property
    def stats(self) -> TierStats:
        """Return a copy of the numbers as they are now."""
        now_ns = self._now()
        return replace(
            self._stats,
            objects=len(self._store),
            used_bytes=self._store.used_bytes,
            queued=self._reads.depth(now_ns) + len(self._puts),
        )

    async def probe(self, keys: Sequence[ObjectKey]) -> int:
        """Return how many of the leading keys are visible, after the latency of each key asked."""
        self._check_open()
        start_ns = self._now()
        found = _leading(self._store, keys)
        asked = min(found + 1, len(keys))
        await self._sleep_until(start_ns + asked * self._config.latency_ns)
        self._now()
        return _leading(self._store, keys[:found])

    async def read(self, key: ObjectKey, out: memoryview, *, prefetch: bool = False) -> None:
        """Fill `out` when the line has carried so many bytes; a miss costs no time."""
        with counted_read(self._stats, out.nbytes):
            self._check_open()
            now_ns = self._now()
            stored = self._store.use(key)
            if stored is None:
                raise TierMissError("no such object in the mock tier")
            check_size(stored.nbytes, out)
            rank = Rank.PREFETCH if prefetch else Rank.GET
            transfer = self._reads.submit(rank, stored.nbytes, now_ns)
            try:
                await self._copy_out(stored, out.cast("B"))
                await self._carried(self._reads, transfer)
                self._reads.woke_late(self._clock.now_ns() - transfer.finish_ns)
            finally:
                self._reads.withdraw(transfer)

    async def write(self, key: ObjectKey, data: memoryview) -> None:
        """Queue an object; on return it is copied, and visible when the line has carried it."""
        with counted_write(self._stats, data.nbytes):
            self._check_open()
            if data.nbytes > self._config.capacity_bytes:
                raise TierError(
                    f"an object of {data.nbytes} bytes does not fit into the mock tier's "
                    f"{self._config.capacity_bytes}"
                )
            await self._wait_for_room(data.nbytes)
            put = self._queue(key, data.nbytes)
            try:
                if put.stored.blob is not None:
                    await self._threads.run(put.stored.blob.fill, data.cast("B"))
            except BaseException:
                self._take_back(put)
                raise
            finally:
                put.copied.set()
            self._check_open()

    async def flush(self) -> None:
        """Wait until the writes queued by now are through."""
        self._check_open()
        # The last first: then one sleep serves for all.
        for put in reversed(tuple(self._puts)):
            await put.copied.wait()
            await self._carried(self._writes, put.transfer)
        self._now()

    async def close(self) -> None:
        """Forget everything, queued writes too; those who wait get a TierError in time."""
        self._open = False
        await self._threads.close()
        self._puts.clear()
        self._queued_bytes = 0
        self._store = Lru()
        self._blobs.clear()

    def _queue(self, key: ObjectKey, nbytes: int) -> _Put:
        now_ns = self._now()
        blob = self._blobs.new(nbytes) if self._config.keeps_data else None
        transfer = self._writes.submit(Rank.PUT, nbytes, now_ns)
        put = _Put(key, _Stored(nbytes, blob), transfer)
        self._puts.append(put)
        self._queued_bytes += nbytes
        return put

    def _take_back(self, put: _Put) -> None:
        """Forget a write whose bytes did not come."""
        self._writes.withdraw(put.transfer)
        if put in self._puts:
            self._puts.remove(put)
            self._queued_bytes -= put.stored.nbytes

    async def _wait_for_room(self, nbytes: int) -> None:
        """Wait until the queue has room for a write, or is empty."""
        while self._puts and self._queued_bytes + nbytes > MAX_QUEUED_BYTES:
            oldest = self._puts[0]
            await oldest.copied.wait()
            await self._carried(self._writes, oldest.transfer)
            self._now()

    def _now(self) -> int:
        """Return the time, with the store as it is by then."""
        now_ns = self._clock.now_ns()
        while self._puts and self._puts[0].copied.is_set():
            put = self._puts[0]
            if self._writes.finish_ns(put.transfer, now_ns) > now_ns:
                break
            self._puts.popleft()
            self._queued_bytes -= put.stored.nbytes
            self._apply(put)
        return now_ns

    def _apply(self, put: _Put) -> None:
        """Make a written object visible; the oldest go until it fits."""
        self._release(self._store.drop(put.key))
        room_bytes = self._config.capacity_bytes - put.stored.nbytes
        for _, evicted in self._store.evict_to(room_bytes):
            self._stats.evicted += 1
            self._release(evicted)
        self._store.put(put.key, put.stored, put.stored.nbytes)

    def _release(self, stored: _Stored | None) -> None:
        if stored is not None and stored.blob is not None:
            self._blobs.drop(stored.blob)

    async def _copy_out(self, stored: _Stored, out: memoryview) -> None:
        """Copy the bytes while the line, as it were, carries them."""
        if stored.blob is None:
            await self._threads.run(_fill_zeros, out)
            return
        with self._blobs.reading(stored.blob):
            await self._threads.run(stored.blob.copy_to, out)

    async def _carried(self, line: Line, transfer: Transfer) -> None:
        """Return when a line has carried a transfer; better ranks may put it off."""
        while True:
            now_ns = self._clock.now_ns()
            finish_ns = line.finish_ns(transfer, now_ns)
            if finish_ns <= now_ns:
                return
            await self._sleep_until(finish_ns)

    async def _sleep_until(self, deadline_ns: int) -> None:
        await self._clock.sleep_ns(deadline_ns - self._clock.now_ns())
        self._check_open()

    def _check_open(self) -> None:
        if not self._open:
            raise closed_error(self.name)


def _leading(store: Lru[ObjectKey, _Stored], keys: Sequence[ObjectKey]) -> int:
    """Use the leading keys that are there and return how many they are."""
    return sum(1 for _ in takewhile(lambda key: store.use(key) is not None, keys))


def _fill_zeros(out: memoryview) -> None:
    """Give content that does not depend on what the memory held before."""
    np.frombuffer(out, dtype=np.uint8)[:] = 0

"""Faults of the L2 tiers: what a store behind L1 does wrong, and how it is put around a tier.

A fault gets a tier and returns one around it, whose probes, reads or writes go another way.  It
stands above the tier's own proofs, so a bit that it flips is one that flips on the way into L1.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from benchserver.refserver.faults.call import Active
from benchserver.refserver.tiers.tier import Tier, TierError, TierMissError, TierStats

if TYPE_CHECKING:
    from benchserver.refserver.objectkey import ObjectKey

_NOISE = b"\xa5"

Probe = Callable[["Sequence[ObjectKey]"], Awaitable[int]]
Read = Callable[["ObjectKey", memoryview, bool], Awaitable[None]]
"""The key, the memory to fill, whether it is a prefetch."""

Write = Callable[["ObjectKey", memoryview], Awaitable[None]]


class _FaultError(TierError):
    """An error that a fault made, and no tier has counted."""


class _FaultMissError(TierMissError):
    """A miss that a fault made, and no tier has counted."""


class AlteredTier:
    """A tier, some of whose methods were replaced; its numbers count what they raise."""

    def __init__(
        self,
        tier: Tier,
        *,
        probe: Probe | None = None,
        read: Read | None = None,
        write: Write | None = None,
    ) -> None:
        self.name = tier.name
        self.verifiable = tier.verifiable
        self._tier = tier
        self._probe = probe or tier.probe
        self._read = read or _reader(tier)
        self._write = write or tier.write
        self._errors = 0
        self._misses = 0

    @property
    def is_healthy(self) -> bool:
        """Say what the tier says."""
        return self._tier.is_healthy

    @property
    def stats(self) -> TierStats:
        """Return the tier's numbers, and the errors and misses that the fault made."""
        stats = self._tier.stats
        return replace(
            stats, errors=stats.errors + self._errors, misses=stats.misses + self._misses
        )

    async def probe(self, keys: Sequence[ObjectKey]) -> int:
        """Return how many of the leading keys are there, or are said to be."""
        return await self._probe(keys)

    async def read(self, key: ObjectKey, out: memoryview, *, prefetch: bool = False) -> None:
        """Fill `out` as the fault does, or raise TierError or TierMissError."""
        try:
            await self._read(key, out, prefetch)
        except _FaultMissError:
            self._misses += 1
            raise
        except _FaultError:
            self._errors += 1
            raise

    async def write(self, key: ObjectKey, data: memoryview) -> None:
        """Keep `data` as the fault does, or raise TierError."""
        try:
            await self._write(key, data)
        except _FaultError:
            self._errors += 1
            raise

    async def flush(self) -> None:
        """Flush the tier."""
        await self._tier.flush()

    async def close(self) -> None:
        """Close the tier."""
        await self._tier.close()


def _reader(tier: Tier) -> Read:
    async def read(key: ObjectKey, out: memoryview, prefetch: bool) -> None:
        await tier.read(key, out, prefetch=prefetch)

    return read


def fail_reads(active: Active, tier: Tier) -> Tier:
    """Let a read fail before it has begun."""

    async def read(key: ObjectKey, out: memoryview, prefetch: bool) -> None:
        if active.fires():
            raise _error(active, errno.EIO)
        await tier.read(key, out, prefetch=prefetch)

    return AlteredTier(tier, read=read)


def cut_reads(active: Active, tier: Tier) -> Tier:
    """Give the first half of an object and noise behind it, and say that it is short."""

    async def read(key: ObjectKey, out: memoryview, prefetch: bool) -> None:
        await tier.read(key, out, prefetch=prefetch)
        if active.fires():
            half = out.nbytes // 2
            out.cast("B")[half:] = _NOISE * (out.nbytes - half)
            raise _FaultError(f"fault {active.text}: {half} of {out.nbytes} bytes came")

    return AlteredTier(tier, read=read)


def corrupt_reads(active: Active, tier: Tier) -> Tier:
    """Flip one bit in the middle of what was read, and say nothing."""

    async def read(key: ObjectKey, out: memoryview, prefetch: bool) -> None:
        await tier.read(key, out, prefetch=prefetch)
        if active.fires():
            out.cast("B")[out.nbytes // 2] ^= 1

    return AlteredTier(tier, read=read)


def empty_reads(active: Active, tier: Tier) -> Tier:
    """Give zeros in place of the object, and say nothing.

    Memory that is merely left as it was may hold the very object, from before L1 lost it.
    """

    async def read(key: ObjectKey, out: memoryview, prefetch: bool) -> None:
        await tier.read(key, out, prefetch=prefetch)
        if active.fires():
            out.cast("B")[:] = bytes(out.nbytes)

    return AlteredTier(tier, read=read)


def lying_probes(active: Active, tier: Tier) -> Tier:
    """Say that everything is there, and give nothing of it when it is read."""

    async def probe(keys: Sequence[ObjectKey]) -> int:
        if not active.fires():
            return await tier.probe(keys)
        for key in keys:
            active.notes.put(key, True)
        return len(keys)

    async def read(key: ObjectKey, out: memoryview, prefetch: bool) -> None:
        if active.notes.take(key):
            raise _FaultMissError(f"fault {active.text}: it was there a moment ago")
        await tier.read(key, out, prefetch=prefetch)

    return AlteredTier(tier, probe=probe, read=read)


def stall(active: Active, tier: Tier) -> Tier:
    """Let probes and reads hang for a while, each; they are right in the end."""

    async def wait() -> None:
        if active.fires():
            await active.core.clock.sleep_ns(active.settings.delay_ns)

    async def probe(keys: Sequence[ObjectKey]) -> int:
        await wait()
        return await tier.probe(keys)

    async def read(key: ObjectKey, out: memoryview, prefetch: bool) -> None:
        await wait()
        await tier.read(key, out, prefetch=prefetch)

    return AlteredTier(tier, probe=probe, read=read)


def refusing_writes(code: int) -> Callable[[Active, Tier], Tier]:
    """Return what lets writes fail with a system error, nothing being kept of them."""

    def around(active: Active, tier: Tier) -> Tier:
        async def write(key: ObjectKey, data: memoryview) -> None:
            if active.fires():
                raise _error(active, code)
            await tier.write(key, data)

        return AlteredTier(tier, write=write)

    return around


def _error(active: Active, code: int) -> _FaultError:
    return _FaultError(f"fault {active.text}: {errno.errorcode[code]}, {os.strerror(code)}")

"""The interface of an L2 tier, its errors, and the numbers that every tier counts.

A tier keeps whole objects under `ObjectKey`s.  It belongs to one event loop: its methods are
called there and nowhere else, any number at once, and bytes move in threads, so that a slow tier
delays nobody but those who wait for it.

What a tier promises:

- A read fills all of `out` with one object that was written under that key, or raises.  After an
  error the contents of `out` mean nothing; nobody but the caller may have used them.
- A read or a write that was cancelled uses its memory no more when the CancelledError arrives.
- A write that raised, or was cancelled, leaves the old object, the whole new one, or none.
- What was acknowledged and flushed is found until it is evicted, also by the next process if the
  tier outlives this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.tiers.config import UNLIMITED


class TierError(Exception):
    """The tier could not do it, now or ever; one line."""


class TierMissError(TierError):
    """There is no such object, or no sound one.  Readers handle both alike."""


@dataclass(slots=True, kw_only=True)
class TierStats:
    """What a tier did since it was opened, and what it holds now."""

    hits: int = 0
    """Reads that gave an object; probes do not count."""
    misses: int = 0
    """Reads that found no sound object, those of `corrupt` included."""
    errors: int = 0
    """Reads and writes that failed otherwise."""
    corrupt: int = 0
    """Objects that were dropped because they were not what was written."""
    evicted: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    """Both without what the tier adds; a write counts when it is acknowledged."""
    objects: int = 0
    used_bytes: int = 0
    """As the tier takes them, headers included."""
    capacity_bytes: int = UNLIMITED
    queued: int = 0
    """Reads and writes that are not through, acknowledged ones included."""


class Reported(Protocol):
    """What a tier says of itself, for those who show it."""

    name: str
    verifiable: bool
    """False: sizes alone are kept, and what is read is not what was written."""

    @property
    def is_healthy(self) -> bool:
        """Tell whether there is any use in asking; False stays so."""
        ...

    @property
    def stats(self) -> TierStats:
        """Return a copy of the numbers as they are now."""
        ...


class Tier(Reported, Protocol):
    """One store of objects."""

    async def probe(self, keys: Sequence[ObjectKey]) -> int:
        """Return how many of the leading keys are there: the offset of the first miss.

        What is found counts as used.  A later read can still miss.
        """
        ...

    async def read(self, key: ObjectKey, out: memoryview, *, prefetch: bool = False) -> None:
        """Fill `out`, which must have the object's size, or raise TierError or TierMissError.

        Where reads queue, those that prefetch go first.
        """
        ...

    async def write(self, key: ObjectKey, data: memoryview) -> None:
        """Keep a copy of `data` in place of what the key had, or raise TierError.

        On return `data` is the caller's again; whether the object is visible and safe by then,
        each tier says.
        """
        ...

    async def flush(self) -> None:
        """Return when every write acknowledged before is visible, and safe if the tier lasts."""
        ...

    async def close(self) -> None:
        """Let go of everything; once more does nothing.  Any other call raises TierError then."""
        ...


@contextmanager
def counted_read(stats: TierStats, nbytes: int) -> Iterator[None]:
    """Count a read by how the block ends; a cancelled one not at all."""
    try:
        yield
    except TierMissError:
        stats.misses += 1
        raise
    except TierError:
        stats.errors += 1
        raise
    stats.hits += 1
    stats.read_bytes += nbytes


@contextmanager
def counted_write(stats: TierStats, nbytes: int) -> Iterator[None]:
    """Count a write by how the block ends; a cancelled one not at all."""
    try:
        yield
    except TierError:
        stats.errors += 1
        raise
    stats.written_bytes += nbytes


def check_size(holds: int, out: memoryview) -> None:
    """Raise TierError unless `out` has the object's size."""
    if holds != out.nbytes:
        raise TierError(f"the object has {holds} bytes, its reader expects {out.nbytes}")


def closed_error(name: str) -> TierError:
    """Return the error of any call after `close`."""
    return TierError(f"the {name} tier is closed")

"""What every tier counts, and the errors that all have in common."""

from __future__ import annotations

import asyncio

import pytest

from benchserver.refserver.tiers.tier import (
    TierError,
    TierMissError,
    TierStats,
    check_size,
    closed_error,
    counted_read,
    counted_write,
)


def read(stats: TierStats, error: BaseException | None) -> None:
    with counted_read(stats, 10):
        if error is not None:
            raise error


def write(stats: TierStats, error: BaseException | None) -> None:
    with counted_write(stats, 10):
        if error is not None:
            raise error


def test_a_read_counts_by_how_it_ends() -> None:
    stats = TierStats()
    read(stats, None)
    assert stats == TierStats(hits=1, read_bytes=10)
    with pytest.raises(TierMissError):
        read(stats, TierMissError("gone"))
    assert stats == TierStats(hits=1, read_bytes=10, misses=1)
    with pytest.raises(TierError):
        read(stats, TierError("torn"))
    assert stats == TierStats(hits=1, read_bytes=10, misses=1, errors=1)


def test_a_write_counts_when_it_is_acknowledged() -> None:
    stats = TierStats()
    write(stats, None)
    assert stats == TierStats(written_bytes=10)
    with pytest.raises(TierError):
        write(stats, TierError("full"))
    assert stats == TierStats(written_bytes=10, errors=1)


def test_what_is_cancelled_counts_nothing() -> None:
    stats = TierStats()
    for act in (read, write):
        with pytest.raises(asyncio.CancelledError):
            act(stats, asyncio.CancelledError())
    assert stats == TierStats()


def test_a_reader_must_know_the_size() -> None:
    check_size(3, memoryview(b"abc"))
    for size in (2, 4):
        with pytest.raises(TierError, match=rf"^the object has {size} bytes, .* expects 3$"):
            check_size(size, memoryview(b"abc"))


def test_after_the_end_a_tier_says_its_name() -> None:
    assert str(closed_error("fs")) == "the fs tier is closed"

"""The arena: first fit over pages, and segments that never outlive it."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.errors import FatalError
from benchserver.refserver.config import ALIGN_BYTES
from benchserver.refserver.store.arena import (
    NO_ROOM,
    FreeList,
    aligned,
    create_shared,
    open_private,
)

SHM = Path("/dev/shm")
NAME = f"refserver-test-arena-{os.getpid()}"


def test_first_fit_is_page_aligned_and_reuses_the_lowest_gap() -> None:
    space = FreeList(4 * ALIGN_BYTES)
    offsets = [space.take(nbytes) for nbytes in (1, ALIGN_BYTES, ALIGN_BYTES + 1)]
    assert offsets == [0, ALIGN_BYTES, 2 * ALIGN_BYTES]
    assert space.take(1) == NO_ROOM
    space.give(ALIGN_BYTES, ALIGN_BYTES)
    assert space.take(2) == ALIGN_BYTES


def test_freed_neighbours_become_one_extent() -> None:
    space = FreeList(3 * ALIGN_BYTES)
    for _ in range(3):
        space.take(1)
    for offset in (0, 2 * ALIGN_BYTES, ALIGN_BYTES):
        space.give(offset, 1)
    assert space.take(3 * ALIGN_BYTES) == 0


def test_a_capacity_that_is_no_multiple_of_a_page_is_rounded_down() -> None:
    assert FreeList(2 * ALIGN_BYTES - 1).take(ALIGN_BYTES + 1) == NO_ROOM


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3 * ALIGN_BYTES)), max_size=60))
def test_extents_never_overlap_and_everything_comes_back(steps: list[tuple[bool, int]]) -> None:
    space = FreeList(16 * ALIGN_BYTES)
    held: list[tuple[int, int]] = []
    for is_take, nbytes in steps:
        if is_take:
            offset = space.take(nbytes)
            if offset != NO_ROOM:
                held.append((offset, nbytes))
        elif held:
            space.give(*held.pop(nbytes % len(held)))
        ends = sorted((offset, offset + aligned(nbytes)) for offset, nbytes in held)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(ends))
        assert all(start >= 0 and end <= 16 * ALIGN_BYTES for start, end in ends)
        used = sum(aligned(nbytes) for _, nbytes in held)
        assert space.free_bytes == 16 * ALIGN_BYTES - used
    for extent in held:
        space.give(*extent)
    assert space.take(16 * ALIGN_BYTES) == 0


def test_a_shared_arena_is_private_to_the_user_fully_allocated_and_removed() -> None:
    arena = create_shared(NAME, 3 * ALIGN_BYTES)
    try:
        stat = (SHM / NAME).stat()
        assert (stat.st_size, stat.st_mode & 0o777) == (3 * ALIGN_BYTES, 0o600)
        assert stat.st_blocks * 512 >= 3 * ALIGN_BYTES
        arena.view(ALIGN_BYTES, 4)[:] = (1, 2, 3, 4)
        assert (SHM / NAME).read_bytes()[ALIGN_BYTES : ALIGN_BYTES + 4] == b"\1\2\3\4"
    finally:
        arena.close()
    assert not (SHM / NAME).exists()


def test_a_segment_of_somebody_else_is_refused_and_left_alone() -> None:
    (SHM / NAME).write_bytes(b"theirs")
    try:
        with pytest.raises(FatalError, match="exists: another server"):
            create_shared(NAME, ALIGN_BYTES)
        assert (SHM / NAME).read_bytes() == b"theirs"
    finally:
        (SHM / NAME).unlink()


def test_a_pool_that_does_not_fit_leaves_no_segment() -> None:
    with pytest.raises(FatalError, match="use a smaller L1"):
        create_shared(NAME, 1 << 50)
    assert not (SHM / NAME).exists()


def test_memory_with_a_living_view_is_unmapped_when_the_view_goes() -> None:
    arena = open_private(ALIGN_BYTES)
    view = arena.view(0, 8)
    arena.close()
    view[:] = 7
    assert view.tolist() == [7] * 8


HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")


@pytest.mark.skipif(not HUGE_PAGES.exists(), reason="this kernel has no transparent huge pages")
def test_private_memory_asks_for_huge_pages() -> None:
    arena = open_private(4 << 20)
    try:
        address = arena.view(0, 1).ctypes.data
        assert "hg" in flags_of_mapping_at(address)
    finally:
        arena.close()


def flags_of_mapping_at(address: int) -> list[str]:
    """Return the kernel's flags of the mapping that an address lies in."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(found[1], 16) <= address < int(found[2], 16)
        if inside and line.startswith("VmFlags:"):
            return line.split()[1:]
    return []

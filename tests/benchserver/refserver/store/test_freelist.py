"""Free extents: first fit over pages."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from benchserver.refserver.store.freelist import ALIGN_BYTES, NO_ROOM, FreeList, aligned


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

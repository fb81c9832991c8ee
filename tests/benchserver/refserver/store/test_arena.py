"""The arena: segments that never outlive it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from benchserver.errors import FatalError
from benchserver.refserver.store.arena import create_shared, open_private
from benchserver.refserver.store.freelist import ALIGN_BYTES

SHM = Path("/dev/shm")
NAME = f"refserver-test-arena-{os.getpid()}"


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

"""Names in /dev/shm that a process has mapped."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from benchserver.environment.sharedmemory import bytes_of, mapped_names

PAGE = mmap.PAGESIZE


def test_what_is_mapped_is_named_and_what_was_taken_away_is_not(tmp_path: Path) -> None:
    for name in ("kept", "gone", "never mapped"):
        (tmp_path / name).write_bytes(b"x" * 4 * PAGE)
    with open(tmp_path / "kept", "r+b") as kept, open(tmp_path / "gone", "r+b") as gone:
        first, second = mmap.mmap(kept.fileno(), PAGE), mmap.mmap(gone.fileno(), PAGE)
    with first, second:
        assert mapped_names(os.getpid(), shm=tmp_path) == {"kept", "gone"}
        (tmp_path / "gone").unlink()
        assert mapped_names(os.getpid(), shm=tmp_path) == {"kept"}
    assert mapped_names(os.getpid(), shm=tmp_path) == frozenset()


def test_bytes_are_what_is_taken_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "whole").write_bytes(b"x" * 4 * PAGE)
    with open(tmp_path / "hole", "wb") as file:
        file.truncate(1 << 20)
    assert bytes_of(["whole", "hole", "absent"], shm=tmp_path) == {"whole": 4 * PAGE, "hole": 0}


def test_a_process_that_is_not_there_has_mapped_nothing(tmp_path: Path) -> None:
    assert mapped_names(1, proc=tmp_path) == frozenset()

"""POSIX shared memory by name: made once, opened by others, gone when it is told to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchserver.refserver.store.segments import create_segment, open_segment, unlink_segment

pytestmark = pytest.mark.usefixtures("leak_free")

NAME = f"bench-server-segments_{os.getpid()}_test"
PATH = Path("/dev/shm") / NAME


@pytest.fixture
def made() -> Iterator[int]:
    """Give the descriptor of a new segment, which goes with the test."""
    descriptor = create_segment(NAME)
    yield descriptor
    os.close(descriptor)
    PATH.unlink(missing_ok=True)


def test_a_segment_is_empty_and_its_users_alone(made: int) -> None:
    status = os.fstat(made)
    assert (status.st_size, status.st_mode & 0o777) == (0, 0o600)
    assert PATH.exists()


def test_a_name_is_given_once(made: int) -> None:
    assert made >= 0
    with pytest.raises(FileExistsError):
        create_segment(NAME)


def test_others_read_what_was_written_also_after_the_name_is_gone(made: int) -> None:
    other = open_segment(NAME)
    try:
        unlink_segment(NAME)
        assert not PATH.exists()
        os.write(made, b"still there")
        assert os.pread(other, 20, 0) == b"still there"
    finally:
        os.close(other)
    for act in (open_segment, unlink_segment):
        with pytest.raises(FileNotFoundError):
            act(NAME)


def test_opening_a_pipe_of_that_name_does_not_wait() -> None:
    os.mkfifo(PATH)
    try:
        descriptor = open_segment(NAME)
        assert os.readlink(f"/proc/self/fd/{descriptor}") == str(PATH)
        os.close(descriptor)
    finally:
        PATH.unlink()

"""A timer of the kernel: readable at its moment, and not before."""

from __future__ import annotations

import os
import select
import sys
import time

import pytest

from benchserver.clock import NS_PER_MS, NS_PER_S
from benchserver.refserver.timerfd import NO_TIMER, arm_timer, open_timer

pytestmark = [
    pytest.mark.usefixtures("leak_free"),
    pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has timerfd"),
]
WITHIN_MS = 20_000


def is_readable(timer: int, within_ms: int) -> bool:
    waiting = select.poll()
    waiting.register(timer, select.POLLIN)
    return bool(waiting.poll(within_ms))


def test_a_timer_fires_at_its_moment_and_not_before() -> None:
    timer = open_timer()
    assert timer != NO_TIMER
    try:
        assert not is_readable(timer, 0)
        deadline_ns = time.monotonic_ns() + 5 * NS_PER_MS
        arm_timer(timer, deadline_ns)
        assert is_readable(timer, WITHIN_MS)
        assert time.monotonic_ns() >= deadline_ns
        assert int.from_bytes(os.read(timer, 8), sys.byteorder) == 1
        with pytest.raises(BlockingIOError):
            os.read(timer, 8)
    finally:
        os.close(timer)


@pytest.mark.parametrize("deadline_ns", [-1, 0, 1])
def test_a_moment_that_is_past_fires_at_once(deadline_ns: int) -> None:
    timer = open_timer()
    try:
        arm_timer(timer, deadline_ns)
        assert is_readable(timer, WITHIN_MS)
    finally:
        os.close(timer)


def test_the_last_moment_counts() -> None:
    timer = open_timer()
    try:
        arm_timer(timer, 0)
        arm_timer(timer, time.monotonic_ns() + 3600 * NS_PER_S)
        assert not is_readable(timer, 0)
    finally:
        os.close(timer)


def test_what_is_no_timer_is_an_error_of_the_system() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        arm_timer(-1, 1)

"""The monotonic clock, with sleeps that end within some ten microseconds of their time.

An event loop's own timers round up to milliseconds, which is all of a latency of 1 ms.  On Linux
a timerfd wakes the loop instead; where there is none, the loop's timers must do.

A process wakes up later than its timer by an amount that hardly changes.  So timers are set
earlier by what was usual lately, and the rest is passed in turns of the event loop: a sleep never
ends early.
"""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from benchserver.clock import NS_PER_S, RealClock

MAX_LEAD_NS = 300_000
"""Timers are set earlier by no more than this: the rest of a sleep costs processor time."""

_LATENESS_WEIGHT = 8
"""The newest lateness counts for one part in this many."""

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1


class _TimeSpec(ctypes.Structure):
    _fields_ = (("s", ctypes.c_long), ("ns", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _TimeSpec), ("value", _TimeSpec))


class FineClock(RealClock):
    """A RealClock whose sleeps are fine; it holds a descriptor while anybody sleeps."""

    def __init__(self) -> None:
        self._timer = _Timer()
        self._usual_late_ns = 0

    async def sleep_ns(self, duration_ns: int) -> None:
        """Sleep on the event loop."""
        deadline_ns = self.now_ns() + duration_ns
        aim_ns = deadline_ns - min(self._usual_late_ns, MAX_LEAD_NS)
        if aim_ns > self.now_ns():
            await self._timer.wait_until(aim_ns)
            late_ns = self.now_ns() - aim_ns
            self._usual_late_ns += (late_ns - self._usual_late_ns) // _LATENESS_WEIGHT
        while True:
            # At least once: whoever sleeps lets others run.
            await asyncio.sleep(0)
            if self.now_ns() >= deadline_ns:
                return


class _Timer:
    """One timerfd for all sleepers of one event loop; open while there are any."""

    def __init__(self) -> None:
        self._fd = -1
        self._serial = count()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []

    async def wait_until(self, deadline_ns: int) -> None:
        """Return soon after a moment of the monotonic clock."""
        if self._fd < 0:
            self._fd = _create_timer()
"""

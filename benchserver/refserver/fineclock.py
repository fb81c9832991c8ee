"""The monotonic clock, with sleeps that end within some ten microseconds of their time.

An event loop's own timers round up to milliseconds, which is all of a latency of 1 ms.  On Linux
a timerfd wakes the loop instead; where there is none, the loop's timers must do.

A process wakes up later than its timer by an amount that hardly changes.  So timers are set
earlier by what was usual lately, and the rest is passed in turns of the event loop: a sleep never
ends early.
"""

from __future__ import annotations

import asyncio
import heapq
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from benchserver.clock import NS_PER_S, RealClock
from benchserver.refserver.timerfd import NO_TIMER, arm_timer, open_timer

MAX_LEAD_NS = 300_000
"""Timers are set earlier by no more than this: the rest of a sleep costs processor time."""

_LATENESS_WEIGHT = 8
"""The newest lateness counts for one part in this many."""


class FineClock(RealClock):
    """A RealClock whose sleeps are fine; it holds a descriptor while anybody sleeps."""

    def __init__(self) -> None:
        self._timer = _Timer(self.now_ns)
        self._usual_late_ns = 0

    async def sleep_ns(self, duration_ns: int) -> None:
        """Sleep on the event loop."""
        deadline_ns = self.now_ns() + duration_ns
        aim_ns = deadline_ns - self._usual_late_ns
        if aim_ns > self.now_ns():
            await self._timer.wait_until(aim_ns)
            late_ns = min(self.now_ns() - aim_ns, MAX_LEAD_NS)
            self._usual_late_ns += (late_ns - self._usual_late_ns) // _LATENESS_WEIGHT
        while True:
            # At least once: a sleeper lets others run.
            await asyncio.sleep(0)
            if self.now_ns() >= deadline_ns:
                return


class _Timer:
    """One timerfd for all sleepers of one event loop; open while there are any."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._fd = NO_TIMER
        self._serial = count()
        self._sleepers = 0
        self._due: list[tuple[int, int, asyncio.Future[None]]] = []

    async def wait_until(self, deadline_ns: int) -> None:
        """Return soon after a moment of the monotonic clock."""
        loop = asyncio.get_running_loop()
        if self._fd == NO_TIMER and not self._open(loop):
            await asyncio.sleep((deadline_ns - self._now_ns()) / NS_PER_S)
            return
        woken: asyncio.Future[None] = loop.create_future()
        entry = (deadline_ns, next(self._serial), woken)
        heapq.heappush(self._due, entry)
        self._sleepers += 1
        try:
            if self._due[0] is entry:
                arm_timer(self._fd, deadline_ns)
            await woken
        finally:
            self._sleepers -= 1
            if not self._sleepers:
                self._close(loop)

    def _open(self, loop: asyncio.AbstractEventLoop) -> bool:
        self._fd = open_timer()
        if self._fd == NO_TIMER:
            return False
        loop.add_reader(self._fd, self._fire)
        return True

    def _close(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nobody sleeps: those who are still listed were cancelled."""
        loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = NO_TIMER
        self._due.clear()

    def _fire(self) -> None:
        """Wake whose time it is, and set the timer for the next."""
        with suppress(BlockingIOError):
            os.read(self._fd, 8)
        now_ns = self._now_ns()
        while self._due and self._due[0][0] <= now_ns:
            woken = heapq.heappop(self._due)[2]
            if not woken.done():
                woken.set_result(None)
        if self._due:
            arm_timer(self._fd, self._due[0][0])

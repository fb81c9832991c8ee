"""Time for the harness: a real clock, and a virtual one, in which no test waits."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime, timezone
from itertools import count
from typing import Any, Protocol
from weakref import WeakKeyDictionary

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000


class Clock(Protocol):
    """What the harness needs to know of time."""

    def now_ns(self) -> int:
        """Return nanoseconds since an arbitrary, fixed moment."""
        ...

    async def sleep_ns(self, duration_ns: int) -> None:
        """Return after the duration; at once if it is zero or negative."""
        ...


class RealClock:
    """The monotonic clock of this machine."""

    def now_ns(self) -> int:
        """Return the monotonic time in nanoseconds."""
        return time.monotonic_ns()

    async def sleep_ns(self, duration_ns: int) -> None:
        """Sleep on the event loop."""
        await asyncio.sleep(max(0, duration_ns) / NS_PER_S)


def utc_now() -> str:
    """Return the time of the calendar, UTC, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


class VirtualClock:
    """A clock for tests: nobody waits, and any number may sleep.

    Time stands still while anything can run on the event loop.  Once nothing can, it jumps to the
    moment at which the first sleeper is due, or, `by_hand`, stays until a test moves it.  Sleepers
    wake one at a time: those due at the same moment in the order in which they fell asleep, each
    when the one before can do no more.  What works in another thread is not waited for.
    """

    def __init__(self, start_ns: int = 0, *, by_hand: bool = False) -> None:
        self._now_ns = start_ns
        self._by_hand = by_hand
        self._serial = count()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._fell_asleep = asyncio.Event()

    def now_ns(self) -> int:
        """Return the virtual time in nanoseconds."""
        return self._now_ns

    @property
    def sleeping(self) -> int:
        """Return how many sleep now."""
        return sum(not sleep.done() for _, _, sleep in self._sleepers)

    async def sleep_ns(self, duration_ns: int) -> None:
        """Return once time has come so far; others run meanwhile, even if there is no wait."""
        if duration_ns <= 0:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        sleep: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._sleepers, (self._now_ns + duration_ns, next(self._serial), sleep))
        self._fell_asleep.set()
        if not self._by_hand:
            when_idle(loop, self._jump)
        await sleep

    async def until_asleep(self, number: int) -> None:
        """Return once so many sleep: what they had to do before, in threads too, is done then."""
        while self.sleeping < number:
            self._fell_asleep.clear()
            await self._fell_asleep.wait()

    async def move_ns(self, duration_ns: int) -> None:
        """Let so much time pass, every sleeper wake in it, and all do what there is to do."""
        until_ns = self._now_ns + duration_ns
        await idle()
        while self._wake_first(until_ns):
            await idle()
        self._now_ns = max(self._now_ns, until_ns)

    def _jump(self) -> None:
        # Every sleep asks for a jump: none is lost if several fell asleep before the first one.
        self._wake_first()

    def _wake_first(self, until_ns: int | None = None) -> bool:
        """Wake the sleeper that is due first, by `until_ns` if that is said; tell whether one was.

        A sleeper that was cancelled moves no time.
        """
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        if not self._sleepers or (until_ns is not None and self._sleepers[0][0] > until_ns):
            return False
        due_ns, _, sleep = heapq.heappop(self._sleepers)
        self._now_ns = max(self._now_ns, due_ns)
        sleep.set_result(None)
        return True


_WAITING_FOR_IDLE: WeakKeyDictionary[asyncio.AbstractEventLoop, deque[Callable[[], None]]] = (
    WeakKeyDictionary()
)


def when_idle(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call once nothing else can run on the loop; one call at a time, in the order of asking."""
    waiting = _WAITING_FOR_IDLE.setdefault(loop, deque())
    waiting.append(call)
    if len(waiting) == 1:
        loop.call_soon(_look, loop, waiting)


async def idle() -> None:
    """Return once nothing else can run on the event loop."""
    reached = asyncio.Event()
    when_idle(asyncio.get_running_loop(), reached.set)
    await reached.wait()


def _look(loop: Any, waiting: deque[Callable[[], None]]) -> None:
    # asyncio tells nobody whether it is idle; every loop of its own keeps here what can run.
    if not loop._ready:
        waiting.popleft()()
    if waiting:
        loop.call_soon(_look, loop, waiting)

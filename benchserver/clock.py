"""Time for the harness: a real clock, and a virtual one that only moves when told."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

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


class VirtualClock:
    """A clock for tests: sleeping moves it at once."""

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns

    def now_ns(self) -> int:
        """Return the virtual time in nanoseconds."""
        return self._now_ns

    async def sleep_ns(self, duration_ns: int) -> None:
        """Move the clock on, and let other tasks run once."""
        self._now_ns += max(0, duration_ns)
        await asyncio.sleep(0)

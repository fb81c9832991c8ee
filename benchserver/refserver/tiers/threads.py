"""The threads in which a tier moves bytes.

As `refserver.copier`, with a number of threads that its owner chooses (threads that wait for a
disk are not bound by cores), and a TierError for what comes after their end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from benchserver.refserver.copier import until_ended
from benchserver.refserver.tiers.tier import TierError

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """Runs functions in threads of its own."""

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._running: set[asyncio.Future[Any]] = set()
        self._closed = False

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in a thread and return its result; raises TierError after `close`.

        A cancelled call returns when the function has ended or will never begin, however often
        it is cancelled: until then, the memory that it works on is in use.
        """
        if self._closed:
            raise TierError("the tier is closed")
        job = self._pool.submit(function, *args, **kwargs)
        future = asyncio.wrap_future(job)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return await until_ended(job, future)

    async def close(self) -> None:
        """Wait for the functions that run, and end the threads."""
        self._closed = True
        if self._running:
            await asyncio.wait(tuple(self._running))
        self._pool.shutdown(wait=True)

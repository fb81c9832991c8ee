"""The threads that copy bytes, so that the event loop never does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from benchserver.tasks import Threads

P = ParamSpec("P")
T = TypeVar("T")

MAX_THREADS = 8
"""Copies are bound by memory bandwidth; more threads than this only take turns."""


_LOOK_AGAIN_S = 0.1

TimeLeft = Callable[[], float]
"""How many seconds a cancelled call may still wait for its thread; infinite: until it ends."""


async def until_ended(
    job: Future[T], future: asyncio.Future[T], *, left_s: TimeLeft | None = None
) -> T:
    """Return the result of a thread's job, whose `wrap_future` is `future`.

    A cancelled call returns when the job has ended or will never begin, however often it is
    cancelled: until then, the memory that it works on is in use.  Only when `left_s` says that no
    time is left, it returns without that.
    """
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        job.cancel()
        while not future.done():
            timeout_s = None if left_s is None else min(left_s(), _LOOK_AGAIN_S)
            if timeout_s is not None and timeout_s <= 0:
                future.add_done_callback(_look_at)
                raise
            with suppress(asyncio.CancelledError):
                await asyncio.wait([future], timeout=timeout_s)
        _look_at(future)
        raise


def _look_at(future: asyncio.Future[Any]) -> None:
    """Drop a result that nobody waits for any more, without a complaint of the event loop."""
    if not future.cancelled():
        future.exception()


class Copier:
    """Runs functions in threads.  One client's copies never overlap: it waits for each."""

    def __init__(
        self, threads: int = 0, *, name: str = "refserver-copy", left_s: TimeLeft | None = None
    ) -> None:
        """`threads` 0: as many as copies can use.  None is started before it is needed.

        `left_s`: as `until_ended` takes it, for functions that may never end.
        """
        threads = threads or min(MAX_THREADS, os.cpu_count() or 1)
        self._pool = Threads(threads, name)
        self._left_s = left_s

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in a thread and return its result.

        A cancelled call returns only when the function has ended or will never begin, or when no
        time is left for it.
        """
        job = self._pool.submit(function, *args, **kwargs)
        return await until_ended(job, asyncio.wrap_future(job), left_s=self._left_s)

    @property
    def is_idle(self) -> bool:
        """Tell whether no function runs or waits for its turn."""
        return not self._pool.under_way

    async def until_idle(self) -> None:
        """Wait until no function runs or waits for its turn."""
        if jobs := self._pool.under_way:
            await asyncio.wait([asyncio.wrap_future(job) for job in jobs])

    def close(self, within_s: float | None = None) -> bool:
        """End the threads, once the functions that run have ended; None: however long that takes.

        Returns whether they have; a thread that is stuck goes with the process alone.
        """
        self._pool.shutdown(wait=False, cancel_futures=True)
        has_ended = self._pool.idle_within(within_s)
        if has_ended:
            self._pool.shutdown(wait=True)
        return has_ended

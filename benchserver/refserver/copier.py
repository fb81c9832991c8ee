"""The threads that copy bytes, so that the event loop never does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

MAX_THREADS = 8
"""Copies are bound by memory bandwidth; more threads than this only take turns."""


async def until_ended(job: Future[T], future: asyncio.Future[T]) -> T:
    """Return the result of a thread's job, whose `wrap_future` is `future`.

    A cancelled call returns when the job has ended or will never begin, however often it is
    cancelled: until then, the memory that it works on is in use.
    """
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        job.cancel()
        while not future.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # looked at, and dropped
        raise


class Copier:
    """Runs functions in threads.  One client's copies never overlap: it waits for each."""

    def __init__(self, threads: int = 0, *, name: str = "refserver-copy") -> None:
        """`threads` 0: as many as copies can use.  None is started before it is needed."""
        threads = threads or min(MAX_THREADS, os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in a thread and return its result.

        A cancelled call returns only when the function has ended or will never begin.
        """
        job = self._pool.submit(function, *args, **kwargs)
        return await until_ended(job, asyncio.wrap_future(job))

    def close(self) -> None:
        """Wait for the functions that run, and end the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)

"""The threads that copy bytes, so that the event loop never does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

MAX_THREADS = 8
"""Copies are bound by memory bandwidth; more threads than this only take turns."""


class Copier:
    """Runs functions in threads.  One client's copies never overlap: it waits for each."""

    def __init__(self) -> None:
        threads = min(MAX_THREADS, os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="refserver-copy")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in a thread and return its result.

        A cancelled call returns only when the function has ended: until then, the memory that
        it works on is in use.
        """
        job = self._pool.submit(function, *args, **kwargs)
        future = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise

    def close(self) -> None:
        """Wait for the functions that run, and end the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)

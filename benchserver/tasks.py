"""Structured concurrency for Python 3.10: children never outlive their caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
U = TypeVar("U")


async def gather_all(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines together and return their results in order.

    The first that raises cancels the others; all have ended when this returns or raises.
    """
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        await cancel_and_wait(tasks)


async def gather_two(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Run two coroutines of different results together, as `gather_all` does."""
    tasks = asyncio.ensure_future(first), asyncio.ensure_future(second)
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancel_and_wait(tasks)


async def run_beside(main: Coroutine[Any, Any, T], beside: Coroutine[Any, Any, NoReturn]) -> T:
    """Return the result of `main`, with `beside` running as long; an error of either ends both."""
    task, other = asyncio.ensure_future(main), asyncio.ensure_future(beside)
    try:
        await asyncio.wait({task, other}, return_when=asyncio.FIRST_COMPLETED)
        if other.done():
            other.result()
        return await task
    finally:
        await cancel_and_wait([task, other])


class Finishing:
    """Runs coroutines to their end even if whoever waits for them is cancelled."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the coroutine's result; a cancelled caller leaves it running."""
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def wait(self) -> None:
        """Wait for what still runs; if this is cancelled, so is that."""
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not complain about it


async def cancel_and_wait(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait until they have ended; their results and errors are dropped."""
    pending = list(tasks)
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.gather(*pending, return_exceptions=True)


class Threads(ThreadPoolExecutor):
    """Worker threads of which can be known whether any is still at work."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._under_way: set[Future[Any]] = set()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Submit work, and keep it in mind until it has ended or was cancelled."""
        future = super().submit(fn, *args, **kwargs)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return future

    def idle_within(self, seconds: float) -> bool:
        """Wait at most so long for all work that has been submitted; tell whether it has ended."""
        return not wait(list(self._under_way), timeout=seconds).not_done


async def in_thread(executor: Executor, work: Callable[[], T]) -> T:
    """Run blocking work in a thread; a cancelled caller leaves it to end by itself."""
    return await asyncio.get_running_loop().run_in_executor(executor, work)

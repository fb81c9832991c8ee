"""Structured concurrency for Python 3.10: children never outlive their caller.

And waits that end in time, but never blame another for the time in which this process itself stood
still: stopped by a signal, starved of a CPU, or frozen with its machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
U = TypeVar("U")

_REST_WITHIN_S = 0.5
"""How long what still runs on a loop may take to end when the loop is closed."""


_LISTEN_S = 0.25
"""How long somebody must have listened, at the end of a wait, before it is over: what came while
this process stood still lies in the kernel, and ZMQ's own thread fetches it within milliseconds."""

_LISTEN_SHARE = 4
"""The last of so many parts of a short wait, if that is less."""

_LATE_S = 0.05
"""A timer that is later than this says that the process stood still."""

_MOST_LISTENING = 12
"""A process that never gets a CPU gives up all the same, some seconds late."""


class Patience:
    """When a wait is over, for those who set timers; the times are those of one clock, in seconds.

    Look at `look_at_s`, then ask `over`.  A timer that fires far too late says that nobody listened
    meanwhile: then the wait goes on for a moment, from that time on.
    """

    def __init__(self, budget_s: float, now_s: float) -> None:
        self._deadline_s = now_s + budget_s
        self._listened = 0
        self.look_at_s = self._deadline_s - min(_LISTEN_S, budget_s / _LISTEN_SHARE)
        """The end of the wait is noticed in two steps, so that there is always a moment before it
        in which somebody listened."""
        self.stood_still_s = 0.0
        """For how long this process is known to have stood still."""

    def over(self, now_s: float) -> bool:
        """Tell whether the wait is over; if not, there is another `look_at_s`."""
        late_s = now_s - self.look_at_s
        if late_s > _LATE_S:
            self.stood_still_s += late_s
            self._listened += 1
            self.look_at_s = max(self._deadline_s, now_s + _LISTEN_S)
            return self._listened > _MOST_LISTENING
        if self.look_at_s >= self._deadline_s:
            return True
        self.look_at_s = self._deadline_s
        return False

    @property
    def ours(self) -> str:
        """Say what of the wait was our own fault, behind what is said of it; "": nothing."""
        if not self.stood_still_s:
            return ""
        return (
            f"; bench-server itself stood still for {self.stood_still_s:.1f} s of that time "
            "(stopped, or without a CPU), so this says nothing about the server"
        )


class OutOfTimeError(Exception):
    """Something took longer than it may; `ours` is that of Patience."""

    def __init__(self, ours: str) -> None:
        super().__init__(f"out of time{ours}")
        self.ours = ours


async def wait_first(tasks: Iterable[asyncio.Future[Any]], budget_s: float) -> Patience:
    """Return once one of the tasks has ended, or with a patience that is over."""
    loop, waiting = asyncio.get_running_loop(), list(tasks)
    patience = Patience(budget_s, loop.time())
    while True:
        look_in_s = max(0.0, patience.look_at_s - loop.time())
        await asyncio.wait(waiting, timeout=look_in_s, return_when=asyncio.FIRST_COMPLETED)
        if any(task.done() for task in waiting) or patience.over(loop.time()):
            return patience


async def within(coroutine: Coroutine[Any, Any, T], budget_s: float) -> T:
    """Return a coroutine's result; OutOfTimeError, once it has ended, if it takes longer."""
    task = asyncio.ensure_future(coroutine)
    try:
        patience = await wait_first([task], budget_s)
        if task.done():
            return task.result()
        raise OutOfTimeError(patience.ours)
    finally:
        await cancel_and_wait([task])


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
    """Runs coroutines to their end even if the task that waits for them is cancelled."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the coroutine's result; a cancelled caller leaves it running."""
        task = asyncio.ensure_future(coroutine)
        self.add(task)
        return await asyncio.shield(task)

    def add(self, work: asyncio.Future[Any]) -> None:
        """Keep in mind work that is under way, until it has ended."""
        self._tasks.add(work)
        work.add_done_callback(self._ended)

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


class TaskScope:
    """An async context in which tasks run; its end cancels and awaits them all.

    asyncio.TaskGroup needs Python 3.11.

    `failure` is done as soon as any task failed; code that waits in the block watches it.  The
    first failure is raised when the block ends, unless the block itself failed.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task of this scope."""
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def __aenter__(self) -> TaskScope:
        """Enter the scope; the class does not start anything by itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Cancel what still runs, wait for it, and raise the first failure."""
        await cancel_and_wait(self._tasks)
        if not self.failure.done():
            self.failure.cancel()
        failure = None if self.failure.cancelled() else self.failure.exception()
        if error is None and failure is not None:
            raise failure

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not self.failure.done():
            self.failure.set_exception(error)


class Threads(ThreadPoolExecutor):
    """Worker threads of which can be known whether any is still at work."""

    def __init__(self, count: int, name: str = "") -> None:
        super().__init__(count, thread_name_prefix=name)
        self._under_way: set[Future[Any]] = set()

    @property
    def under_way(self) -> tuple[Future[Any], ...]:
        """Return the work that has not ended: it runs, or waits for its turn."""
        return tuple(self._under_way)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Submit work, and keep it in mind until it has ended or was cancelled."""
        future = super().submit(fn, *args, **kwargs)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return future

    def idle_within(self, seconds: float | None) -> bool:
        """Wait at most so long for all work that has been submitted; tell whether it has ended.

        None: as long as it takes.
        """
        return not wait(self.under_way, timeout=seconds).not_done


async def in_thread(executor: Executor, work: Callable[[], T]) -> T:
    """Run blocking work in a thread; a cancelled caller leaves it to end by itself."""
    return await asyncio.get_running_loop().run_in_executor(executor, work)


def close_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Close the loop, after a moment for what still runs on it."""
    try:
        rest = asyncio.all_tasks(loop)
        for task in rest:
            task.cancel()
        if rest:
            loop.run_until_complete(asyncio.wait(rest, timeout=_REST_WITHIN_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()

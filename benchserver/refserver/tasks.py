"""Tasks that end with the block that started them (asyncio.TaskGroup needs Python 3.11)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any


class TaskScope:
    """An async context in which tasks run; its end cancels and awaits them all.

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
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
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

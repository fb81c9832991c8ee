"""An event loop whose work a signal cancels, and that waits for no thread."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from benchserver.ending import Ending
from benchserver.tasks import Threads, close_loop

T = TypeVar("T")

_THREADS = 4
"""They ask over HTTP, or resolve names: neither can be interrupted."""


def run_until_asked(work: Coroutine[Any, Any, T], ending: Ending) -> T | None:
    """Return the work's result, or None if a signal has ended it; `ending` watches its threads."""
    loop = asyncio.new_event_loop()
    threads = Threads(_THREADS)
    loop.set_default_executor(threads)
    ending.watch(threads.idle_within)
    task = loop.create_task(work)
    try:
        with ending.installed(), ending.running(lambda: loop.call_soon_threadsafe(task.cancel)):
            return loop.run_until_complete(task)
    except asyncio.CancelledError:
        return None
    finally:
        close_loop(loop)

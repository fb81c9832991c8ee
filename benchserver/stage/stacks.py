"""Where our own process stands: the stacks of its threads and asyncio tasks, as bounded text.

Stacks that are the same are shown once, with how many have them: a load has thousands of tasks.
May be called in any thread, also while the event loop is stuck.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterable
from types import FrameType
from typing import Any

_MOST_FRAMES = 12
"""The innermost ones: they say what is waited for."""

_MOST_STACKS = 40
_MOST_CHARS = 48_000
"""A pipe that nobody reads holds 64 KiB, and is not waited for."""


def stacks_of(loop: asyncio.AbstractEventLoop) -> str:
    """Return the stacks of all threads, and of all tasks of a loop, the most frequent first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    threads = Counter(
        (_kind(names.get(ident, "?")), _of_frame(frame))
        for ident, frame in sys._current_frames().items()
    )
    tasks = Counter(("asyncio task", _of_task(task)) for task in _tasks(loop))
    text = "".join(_shown(threads, "thread")) + "".join(_shown(tasks, "task"))
    if len(text) <= _MOST_CHARS:
        return text
    return f"{text[:_MOST_CHARS]}\n... {len(text) - _MOST_CHARS} characters more\n"


def _kind(name: str) -> str:
    """Return a thread's name without the number of a worker, which tells nothing."""
    return f"thread {name.rstrip('0123456789').rstrip('_-')}"


def _tasks(loop: asyncio.AbstractEventLoop) -> Iterable[asyncio.Task[Any]]:
    try:
        return asyncio.all_tasks(loop)
    except RuntimeError:  # they changed all the time while we looked, in another thread
        return ()


def _of_frame(frame: FrameType) -> str:
    return "".join(traceback.format_list(traceback.extract_stack(frame)[-_MOST_FRAMES:]))


def _of_task(task: asyncio.Task[Any]) -> str:
    """Return what a task stands in: its own coroutine, and each that is awaited in it."""
    lines: list[str] = []
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            code = frame.f_code
            lines.append(f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}\n')
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return "".join(lines[-_MOST_FRAMES:])


def _shown(stacks: Counter[tuple[str, str]], what: str) -> Iterable[str]:
    for (name, stack), count in stacks.most_common(_MOST_STACKS):
        yield f"{name}{f', {count} times' if count > 1 else ''}:\n{stack}"
    if len(stacks) > _MOST_STACKS:
        yield f"... {len(stacks) - _MOST_STACKS} more {what} stacks\n"

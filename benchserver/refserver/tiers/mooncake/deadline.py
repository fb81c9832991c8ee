"""A deadline for a piece of work that may be in the middle of something when it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from benchserver.refserver.tiers.tier import TierError

T = TypeVar("T")


async def within(timeout_s: float, what: str, work: Coroutine[Any, Any, T]) -> T:
    """Return what the work returns; raises TierError when it was not done in time.

    Late work is cancelled, as it is when the caller is, and has ended when this returns.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task,), timeout=timeout_s)
    except asyncio.CancelledError:
        await _end(task)
        raise
    if not task.done():
        await _end(task)
        if task.cancelled():
            raise TierError(f"{what} took longer than {timeout_s:g} s")
    return task.result()


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end, however often the caller is cancelled."""
    task.cancel()
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()  # looked at, so that nobody complains

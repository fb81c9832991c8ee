"""An event loop of ours that does not turn any more: noticed by a thread, which ends the process.

What the loop would have done by itself (deadlines, a clean end, reports) does not happen then.  The
thread shows where this process stands, has our names removed, and leaves.  It counts its own ticks:
a process that was stopped as a whole has not stood still.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator

from benchserver.errors import EXIT_FAILED
from benchserver.stage.stacks import stacks_of
from benchserver.stage.stall import tick_s


@contextlib.contextmanager
def watched(
    loop: asyncio.AbstractEventLoop,
    *,
    after_s: float,
    show: Callable[[str], object],
    leave: Callable[[int], object],
) -> Iterator[None]:
    """While this lasts, `leave` with an exit code once the loop stood still for so long."""
    over = threading.Event()
    turned = threading.Event()
    every_s = tick_s(after_s)
    most = round(after_s / every_s)

    def watch() -> None:
        ticks = 0
        loop.call_soon_threadsafe(turned.set)
        while not over.wait(every_s):
            ticks += 1
            if turned.is_set():
                ticks = 0
                turned.clear()
                loop.call_soon_threadsafe(turned.set)
            elif ticks >= most:
                show(_said(loop, after_s))
                leave(EXIT_FAILED)
                return

    thread = threading.Thread(target=watch, name="loop watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _said(loop: asyncio.AbstractEventLoop, after_s: float) -> str:
    return (
        f"{stacks_of(loop)}bench-server: error: stalled: our own event loop stood still for "
        f"{after_s:g} s (its stacks are above), so the run cannot end by itself: nothing is "
        "proven, no report is written, and what is open on the server stays there until it gives "
        "us up\n"
    )

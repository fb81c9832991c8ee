"""The process around a run: event loop, signals, last resorts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from benchserver.clock import RealClock
from benchserver.config.run import RunConfig
from benchserver.cuda import mark
from benchserver.ending import Ending
from benchserver.monitor.snapshot import Snapshot
from benchserver.reporter import Reporter
from benchserver.result import RunResult
from benchserver.stage.loopwatch import watched
from benchserver.stage.outside import to_stderr
from benchserver.stage.run import Run
from benchserver.stage.scenario import Scenario
from benchserver.tasks import Threads, close_loop

_NAME_THREADS = 4
"""They resolve host names, which cannot be interrupted either."""

Watcher = Callable[[Callable[[], Snapshot]], AbstractAsyncContextManager[None]]
"""Looks at a run while it lasts.  What it returns is entered on the run's loop, before the run, and
left after it; what it is given says what is known of the run, on that loop, at any time."""


def run_to_end(
    config: RunConfig,
    scenario: Scenario,
    reporter: Reporter,
    ending: Ending,
    watchers: Iterable[Watcher] = (),
) -> RunResult:
    """Run and return the result.

    The first signal asks for a clean end, the second leaves at once (exit code 1), still removing
    our names from /dev/shm.  Threads of the run may be at work still: `ending` watches them.
    """
    ending.undo_last(mark.remove_own_files)
    with ending.installed():
        # Not asyncio.run: it would wait for the threads that resolve names.
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(_run(config, scenario, reporter, ending, watchers))
        finally:
            close_loop(loop)


async def _run(
    config: RunConfig,
    scenario: Scenario,
    reporter: Reporter,
    ending: Ending,
    watchers: Iterable[Watcher],
) -> RunResult:
    loop = asyncio.get_running_loop()
    stop, cancel = asyncio.Event(), threading.Event()
    run = Run(config, scenario, reporter, clock=RealClock(), stop=stop, cancel=cancel)
    names = Threads(_NAME_THREADS)
    loop.set_default_executor(names)
    for threads in (run.threads, names):
        ending.watch(threads.idle_within)

    def ask() -> None:
        if ending.over:
            return  # it came in the last moment
        stop.set()
        cancel.set()
        reporter.note("Stopping: ending sessions and registrations (again: leave at once) ...")

    with (
        ending.undoing(run.release_segments),
        ending.running(lambda: loop.call_soon_threadsafe(ask)),
        watched(loop, after_s=config.stalled_after_s, show=to_stderr, leave=ending.leave_at_once),
    ):
        async with AsyncExitStack() as watching:
            for watch in watchers:
                await watching.enter_async_context(watch(run.snapshot))
            return await run.execute()

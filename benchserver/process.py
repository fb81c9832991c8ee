"""The process around a run: event loop, signals, last resorts."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading

from benchserver.clock import RealClock
from benchserver.config import RunConfig
from benchserver.errors import EXIT_FAILED
from benchserver.reporter import Reporter
from benchserver.result import RunResult
from benchserver.run import Run

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_to_end(config: RunConfig, reporter: Reporter) -> RunResult:
    """Run, print the summary and return the result.

    The first SIGINT or SIGTERM asks for a clean end, the second leaves at once (exit code 1),
    still removing our names from /dev/shm.
    """
    return asyncio.run(_run(config, reporter))


async def _run(config: RunConfig, reporter: Reporter) -> RunResult:
    stop, cancel = asyncio.Event(), threading.Event()
    run = Run(config, reporter, clock=RealClock(), stop=stop, cancel=cancel)

    def on_signal() -> None:
        if stop.is_set():
            run.release_segments()
            sys.stdout.flush()
            os._exit(EXIT_FAILED)
        stop.set()
        cancel.set()
        reporter.note("Stopping: ending sessions and registrations (again: leave at once) ...")

    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal)
    result = await run.execute()
    reporter.finish(result)
    return result

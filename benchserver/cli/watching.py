"""Who looks at a run while it lasts: each is given its snapshots, and changes nothing of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from benchserver import inquiry
from benchserver.line import Line

if TYPE_CHECKING:
    from benchserver.cli.output import Output
    from benchserver.monitor.snapshot import Snapshot
    from benchserver.report.text import TextReporter
    from benchserver.stage.process import Watcher


def watchers_of(reporter: TextReporter, output: Output) -> tuple[Watcher, ...]:
    """Return who looks at a run of the command line."""

    def tell(lines: Iterable[Line]) -> None:
        if output.aside is output.outlet:
            reporter.tell(lines)
            return
        for line in lines:
            output.aside.line(line.text)

    return (summary_on_signal(tell),)


def summary_on_signal(tell: Callable[[Iterable[Line]], object]) -> Watcher:
    """Return a watcher that tells of the run when SIGUSR1 asks for it."""
    from benchserver.report.now import now_lines

    @asynccontextmanager
    async def watch(snapshot: Callable[[], Snapshot]) -> AsyncIterator[None]:
        loop, asked = asyncio.get_running_loop(), False

        def answer() -> None:
            nonlocal asked
            asked = False
            tell(now_lines(snapshot()))

        def ask() -> None:
            # However often it is asked for before the loop comes to it, it is told once.
            nonlocal asked
            if not asked:
                asked = True
                loop.call_soon_threadsafe(answer)

        with inquiry.answering(ask):
            yield

    return watch

"""Who looks at a run while it lasts: each is given its snapshots, and changes nothing of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from benchserver import inquiry
from benchserver.clock import NS_PER_S, Clock, RealClock
from benchserver.errors import one_line
from benchserver.line import Line
from benchserver.options.option import option_called
from benchserver.options.watch import WATCH
from benchserver.suspension import suspending
from benchserver.tasks import cancel_and_wait

if TYPE_CHECKING:
    from benchserver.cli.output import Output
    from benchserver.monitor.snapshot import Snapshot
    from benchserver.report.text import Printer, TextReporter
    from benchserver.stage.process import Watcher


_LINE_EVERY_S = 60
_METRICS_HOST: str = option_called((WATCH,), "--metrics-host").default


@contextmanager
def metrics_served(
    options: Mapping[str, Any], reporter: TextReporter
) -> Iterator[tuple[Watcher, ...]]:
    """Listen where `--metrics-port` says, and yield who serves there, if anybody does.

    UsageError if that cannot be.  Who asks before the run begins is answered once it has begun.
    """
    port = options["metrics_port"]
    if port is None:
        yield ()
        return
    from benchserver.metrics.server import listening_socket, serving, url_of

    with listening_socket(options["metrics_host"] or _METRICS_HOST, port) as listening:
        line = Line(f"Metrics for Prometheus at {url_of(listening)}")
        # Of a free port nobody knows otherwise.
        reporter.note(line.text) if port else reporter.tell([line])
        yield (partial(serving, listening),)


def watchers_of(
    reporter: TextReporter, printer: Printer, output: Output, *, quiet: bool, live: bool
) -> tuple[Watcher, ...]:
    """Return who looks at a run of the command line; `live`: its printer has a view."""

    def tell(lines: Iterable[Line]) -> None:
        if output.aside is output.outlet:
            reporter.tell(lines)
            return
        for line in lines:
            output.aside.line(line.text)

    if live:
        return summary_on_signal(tell), live_view(printer, reporter.note, RealClock())
    if quiet:
        return (summary_on_signal(tell),)
    return summary_on_signal(tell), line_a_minute(reporter.note, RealClock())


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


def live_view(printer: Printer, note: Callable[[str], object], clock: Clock) -> Watcher:
    """Return a watcher that keeps the view of a printer up to date."""
    from benchserver.report.live import PAINTINGS, READ_EVERY

    @asynccontextmanager
    async def watch(snapshot: Callable[[], Snapshot]) -> AsyncIterator[None]:
        async def paint() -> None:
            try:
                for turn in count():
                    if turn % READ_EVERY == 0:
                        printer.show(snapshot())
                    printer.paint()
                    await clock.sleep_ns(NS_PER_S // PAINTINGS)
            finally:
                printer.close()

        with suspending(printer.restore):
            async with _beside(paint(), "the live view", note):
                yield

    return watch


def line_a_minute(note: Callable[[str], object], clock: Clock) -> Watcher:
    """Return a watcher that notes once a minute what the run has come to."""
    from benchserver.report.now import now_line

    @asynccontextmanager
    async def watch(snapshot: Callable[[], Snapshot]) -> AsyncIterator[None]:
        async def tell() -> None:
            while True:
                await clock.sleep_ns(_LINE_EVERY_S * NS_PER_S)
                note(now_line(snapshot()))

        async with _beside(tell(), "the line a minute", note):
            yield

    return watch


@asynccontextmanager
async def _beside(
    work: Coroutine[Any, Any, None], name: str, note: Callable[[str], object]
) -> AsyncIterator[None]:
    """Work while a run lasts.  If that fails, it is noted, and the run goes on without it."""

    def ended(task: asyncio.Future[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            said = f"{type(error).__name__}: {one_line(error, 200)}"
            note(f"Without {name} from here on: {said}; that is a fault of bench-server")

    task = asyncio.ensure_future(work)
    task.add_done_callback(ended)
    try:
        yield
    finally:
        await cancel_and_wait([task])

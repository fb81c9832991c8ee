"""The interval log of a run from the command line: opened before it, a line now and then, settled.

A log that cannot be opened is wrong usage, before anything is started.  One that cannot be written
fails the run, which goes on to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from benchserver.check.run import RUN
from benchserver.check.verdict import failed
from benchserver.clock import NS_PER_S, Clock
from benchserver.errors import UsageError
from benchserver.tasks import cancel_and_wait

if TYPE_CHECKING:
    from benchserver.monitor.snapshot import Snapshot
    from benchserver.outlet import SecondsLeft
    from benchserver.report.intervals import IntervalLog
    from benchserver.result import RunResult
    from benchserver.stage.process import Watcher


class Intervals:
    """The log of one run, or none."""

    def __init__(self, log: IntervalLog | None, every_s: float) -> None:
        """A line every so many seconds."""
        self._log = log
        self._every_s = every_s

    def watchers(self, note: Callable[[str], object], clock: Clock) -> tuple[Watcher, ...]:
        """Return who writes it while the run lasts; `note` is told once if that is in vain."""
        if self._log is None:
            return ()
        return (interval_record(self._log, self._every_s, note, clock),)

    def settle(self, result: RunResult, seconds_left: SecondsLeft) -> None:
        """Wait until all is written, or let the run fail."""
        if self._log is not None and (trouble := self._log.settle(seconds_left)):
            result.ledger.add([failed(RUN, trouble)])


@contextmanager
def open_intervals(options: Mapping[str, Any], reports: Iterable[str]) -> Iterator[Intervals]:
    """Open what was asked for; UsageError if it cannot be, or is one of the `reports`."""
    path, every_s = options["interval_log"], options["interval_log_every"]
    if path is None:
        yield Intervals(None, every_s)
        return
    from benchserver.report.destinations import same_destination
    from benchserver.report.intervals import open_interval_log

    for option in reports:
        other = options[option.removeprefix("--")]
        if other is not None and same_destination(other, path):
            raise UsageError(f"{option} and --interval-log both name {path}")
    with open_interval_log(path) as log:
        yield Intervals(log, every_s)


def interval_record(
    log: IntervalLog, every_s: float, note: Callable[[str], object], clock: Clock
) -> Watcher:
    """Return a watcher that adds a line to a log now and then, and when the run is over."""

    @asynccontextmanager
    async def watch(snapshot: Callable[[], Snapshot]) -> AsyncIterator[None]:
        async def write() -> None:
            while not log.broken:
                await clock.sleep_ns(int(every_s * NS_PER_S))
                log.write(snapshot())
            note(log.broken)

        writing = asyncio.ensure_future(write())
        try:
            yield
        finally:
            await cancel_and_wait([writing])
            log.write(snapshot())

    return watch

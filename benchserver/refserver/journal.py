"""One line for each thing that a client is not told, bounded.

A real server answers bad requests with silence and a log line; so does this one.  A flood of
them must not fill a disk: lines are short, and a window of time has room for only so many.
"""

from __future__ import annotations

from collections.abc import Callable

from benchserver.clock import NS_PER_S, Clock
from benchserver.errors import one_line

MAX_LINES_A_WINDOW = 20
"""More lines a second than this nobody reads; they are counted instead."""

WINDOW_NS = NS_PER_S


class Journal:
    """Writes short lines, and counts those that came too fast."""

    def __init__(self, clock: Clock, write: Callable[[str], None]) -> None:
        self._clock = clock
        self._write = write
        self._window_ns = clock.now_ns()
        self._lines = 0
        self._dropped = 0

    def line(self, text: str) -> None:
        """Write one line, unless this window has had its share."""
        now_ns = self._clock.now_ns()
        if now_ns - self._window_ns >= WINDOW_NS:
            self._open_window(now_ns)
        if self._lines >= MAX_LINES_A_WINDOW:
            self._dropped += 1
            return
        self._lines += 1
        self._write(f"embedded server: {one_line(text)}")

    def _open_window(self, now_ns: int) -> None:
        if self._dropped:
            self._write(f"embedded server: {self._dropped} more lines were not shown")
        self._window_ns, self._lines, self._dropped = now_ns, 0, 0

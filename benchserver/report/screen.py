"""The foot of a terminal: rows that are painted again and again, below lines that stay.

Between two paintings the cursor stands where the rows begin.  So all that was painted can be wiped
by "erase to the end of the screen", whatever has become of it: a window that was made narrower may
have broken each row into several.  The cursor is hidden only while rows are written, the other
screen is never used, and no mode stays changed: whatever ends the process, even SIGKILL, leaves a
terminal that works.

A terminal that nobody reads (Ctrl-S) gets no rows, only lines, as far as the outlet takes them.
Nor does one that another has: a process that was stopped and goes on in the background does not
paint over the shell.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from benchserver.outlet import SHOW_CURSOR, Outlet

_HIDE_CURSOR = "\x1b[?25l"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
"""A row that is too long, because the window has just become narrower, is cut, not broken."""

_ERASE_BELOW = "\r\x1b[J"
_ERASE_RIGHT = "\x1b[K"

_UNKNOWN_SIZE = (80, 24)
"""Of a terminal that says that it has no columns or rows: a serial line."""

_DUMB = ("", "dumb", "unknown")


def can_paint(environ: Mapping[str, str]) -> bool:
    """Tell whether a terminal understands what is written here, by what TERM says of it."""
    return environ.get("TERM", "") not in _DUMB


class Screen:
    """Lines and rows on their way to a terminal; never waits for it."""

    def __init__(
        self,
        outlet: Outlet,
        *,
        size: Callable[[], tuple[int, int]],
        ours: Callable[[], bool] = lambda: True,
    ) -> None:
        """`size` says how many columns and rows there are; `ours`: nobody else has the terminal."""
        self._outlet = outlet
        self._size = size
        self._ours = ours
        self._painted = False

    @property
    def size(self) -> tuple[int, int]:
        """Return the columns and rows of the window, as they are now."""
        columns, rows = self._size()
        return (columns, rows) if columns > 0 and rows > 0 else _UNKNOWN_SIZE

    @property
    def painted(self) -> bool:
        """Tell whether rows stand there."""
        return self._painted

    def write(self, lines: Sequence[str], rows: Sequence[str] = ()) -> bool:
        """Write lines that stay, then the rows below them, in place of those of before.

        Tells whether the rows were written.
        """
        above = "".join(f"{line}\n" for line in lines)
        if rows and self._outlet.waiting and not above:
            return False
        if not rows or self._outlet.waiting or not self._ours():
            if above or self._painted:
                self._outlet.write(f"{self._wipe()}{above}")
            self._painted = False
            return False
        wiped = self._wipe() if above else ""
        body = "\n".join(f"{row}{_ERASE_RIGHT}" for row in rows)
        up = f"\x1b[{len(rows) - 1}A" if len(rows) > 1 else ""
        self._outlet.write(
            f"{wiped}{above}{_HIDE_CURSOR}{_NO_WRAP}\r{body}\x1b[J{_WRAP}{up}\r{SHOW_CURSOR}"
        )
        self._painted = True
        return True

    def wipe_now(self) -> None:
        """Wipe the rows, before all that waits, in a handler of signals."""
        if self._painted:
            self._outlet.write_now(f"{_WRAP}{_ERASE_BELOW}{SHOW_CURSOR}")
            self._painted = False

    def _wipe(self) -> str:
        return _ERASE_BELOW if self._painted else ""


def screen_on(outlet: Outlet) -> Screen:
    """Return the screen of the terminal that an outlet writes to."""
    descriptor = outlet.descriptor
    if descriptor is None:
        return Screen(outlet, size=lambda: _UNKNOWN_SIZE)
    began_with = _group_with(descriptor)

    def size() -> tuple[int, int]:
        try:
            columns, rows = os.get_terminal_size(descriptor)
        except OSError:  # it is gone
            return _UNKNOWN_SIZE
        return columns, rows

    def ours() -> bool:
        # The one that had it at the beginning need not be we: `timeout` makes a group of its own.
        return _group_with(descriptor) in (began_with, os.getpgrp())

    return Screen(outlet, size=size, ours=ours)


def _group_with(descriptor: int) -> int:
    """Return the process group that has a terminal; -1: it is not the one of our session."""
    try:
        return os.tcgetpgrp(descriptor)
    except OSError:
        return -1

"""What a command prints, and that its exit code knows of what could not be printed."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

from benchserver.ending import Ending
from benchserver.errors import one_line
from benchserver.outlet import Outlet, outlet_for

READ_WITHIN_S = 10.0
"""How long the end waits for a reader that has stopped; less once a signal has come."""

_KEEP_S = 1.2
"""For what comes after that, of the three seconds that follow a signal."""

_LEAST_S = 0.25
"""What a reader who reads always gets: after a signal an end may have taken all the time."""

_SAID_WITHIN_S = 2.0
_ASKED_SAID_WITHIN_S = 0.4
"""An error that nobody reads is not a reason to stay, least of all after a signal."""

STDOUT, STDERR = "standard output", "standard error"


def complain(text: str, within_s: float = _SAID_WITHIN_S) -> None:
    """Say an error in one line on stderr, if anybody reads there."""
    say(f"bench-server: error: {one_line(text, 2000)}", within_s)


def say(line: str, within_s: float = _SAID_WITHIN_S) -> None:
    """Say a line on stderr, if anybody reads there."""
    outlet = outlet_for(sys.stderr)
    outlet.line(line)
    outlet.drain(within_s)


class Output:
    """Lines of a command, on their way to stdout, or to stderr if stdout carries a report.

    `aside` is the way to stderr for what is not part of them.  It is the same outlet if both end in
    one place, a terminal for one: two would write into each other's lines.
    """

    def __init__(self, ending: Ending, *, to_stderr: bool = False) -> None:
        """Write nothing yet."""
        self._ending = ending
        self._name = STDERR if to_stderr else STDOUT
        self.outlet: Outlet = outlet_for(sys.stderr if to_stderr else sys.stdout)
        shared = to_stderr or _one_place(sys.stdout, sys.stderr)
        self.aside: Outlet = self.outlet if shared else outlet_for(sys.stderr)

    def trouble(self) -> str:
        """Wait until all is written, or it is hopeless, and return why it is not, in one line.

        A reader that went away is nothing to tell: `bench-server | head`.
        """
        least_until_s = time.monotonic() + _LEAST_S

        def seconds_left(seconds: float) -> float:
            least_s = min(seconds, least_until_s - time.monotonic())
            return max(self._seconds_left(seconds), least_s)

        reason = self.outlet.drain(READ_WITHIN_S, seconds_left)
        self.aside.drain(_SAID_WITHIN_S, seconds_left)  # nobody has to read it
        error = self.outlet.error
        if not reason or (error is not None and error.errno == errno.EPIPE):
            return ""
        return f"cannot write to {self._name}: {reason}"

    def _seconds_left(self, seconds: float) -> float:
        left_s = self._ending.seconds_left(seconds)
        return left_s - _KEEP_S if self._ending.asked else left_s

    def settled(self, code: int, failed: Callable[[str], int]) -> int:
        """Return the exit code: `code`, or what `failed` makes of lines that were not written."""
        trouble = self.trouble()
        if not trouble:
            return code
        ended = failed(trouble)
        was = f", which would have been {code}" if ended != code else ""
        within_s = _ASKED_SAID_WITHIN_S if self._ending.asked else _SAID_WITHIN_S
        complain(f"{trouble} (exit {ended}{was})", within_s)
        return ended


def _one_place(first: TextIO | None, second: TextIO | None) -> bool:
    """Tell whether two streams end in one file, pipe or terminal."""
    if first is None or second is None:
        return False
    try:
        return os.path.samestat(os.fstat(first.fileno()), os.fstat(second.fileno()))
    except (OSError, ValueError, AttributeError):  # one of them lies in memory
        return False

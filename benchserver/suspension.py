"""Ctrl-Z: what has to be undone before the process stops, so that the shell finds its terminal.

The signal stops a process by itself, in the middle of whatever it shows.  When it goes on, nothing
is redone here: who paints now and then finds that nothing is painted.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def suspending(undo: Callable[[], object]) -> Iterator[None]:
    """While this lasts, call `undo` before the process stops; in a handler of signals."""
    before = signal.getsignal(signal.SIGTSTP)
    if before != signal.SIG_DFL:  # ignored, or somebody else's
        yield
        return

    def stop(*_: Any) -> None:
        undo()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        # Here it goes on.
        signal.signal(signal.SIGTSTP, stop)

    signal.signal(signal.SIGTSTP, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, before)

"""What SIGUSR1 asks for: a word on what goes on, at any moment, which changes nothing.

By itself the signal would kill a process.  Here it is answered from the first moments to the last:
by a line where no run is under way, by whoever `answering` names while one is.  It comes in the
main thread, between any two steps of it: a handler takes no lock, and waits for nobody.
"""

from __future__ import annotations

import atexit
import contextlib
import signal
from collections.abc import Callable, Iterator

from benchserver.outlet import write_now

_NO_RUN = b"bench-server: no run is under way, so there is nothing to tell\n"


def install() -> None:
    """Answer from now on, until the process is gone."""
    # Called last of all at the end: Python takes its own handlers out after that.
    atexit.register(signal.signal, signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, lambda *_: write_now(2, _NO_RUN))


@contextlib.contextmanager
def answering(answer: Callable[[], object]) -> Iterator[None]:
    """While this lasts, the signal calls `answer`, in a handler of signals."""
    before = signal.signal(signal.SIGUSR1, lambda *_: answer())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)

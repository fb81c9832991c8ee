"""How the process ends: at any signal, in time, and with nothing of ours in /dev/shm.

Python joins the threads of executors before it exits, and a thread that loads torch, allocates GPU
memory or compiles a kernel cannot be told to stop: then the process leaves by os._exit.  What must
be undone even then (names, a child process) is told to an `Ending`.  Handlers of signals stay ours
until nothing is left to be spoiled; asyncio's own would go with its loop.

Signals come in the main thread, between any two steps of it: a handler takes no lock.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from benchserver.errors import BEFORE, EXIT_FAILED
from benchserver.outlet import write_now

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_WITHIN_S = 2.7
"""After the first signal; the user is promised 3 s."""

_ONE_S = 0.5
"""Signals within this time of the first are that one again: a terminal sends one to the whole
group, and `timeout`, or a shell that has heard it too, passes on its own."""

_THREADS_WITHIN_S = 2.0
_ASKED_THREADS_WITHIN_S = 0.5
"""How long threads may go on when the run has ended, by itself or by a signal."""


class Ending:
    """What signals do, and what an end at once must undo.

    The first signal ends the process in one line, unless somebody listens (`asking`, `running`);
    once the run is over it changes nothing.  A second one, unless it follows at once, always ends
    the process, with code 1, but not one that is patient (`running`).
    """

    def __init__(
        self,
        *,
        now_s: Callable[[], float] = time.monotonic,
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        """Handle no signal yet; `leave` ends the process with an exit code."""
        self._now_s = now_s
        self._leave_process = leave
        self._handling = False
        self._asked_s: float | None = None
        self._patient = False
        self.over = False
        """The run has ended: a first signal changes nothing any more."""
        self._on_first: Callable[[], object] = self._end_before
        self._undo: list[Callable[[], object]] = []
        self._last: list[Callable[[], object]] = []
        self._idle: list[Callable[[float], bool]] = []

    def install(self) -> None:
        """Handle signals from now on, until the process is gone."""
        # Registered first, it is called last: Python takes its handlers out after that, and a
        # signal would kill the process, and with it the exit code, in its last moments.
        atexit.register(_ignore_signals)
        self._take_signals()

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Handle signals while this lasts, if they are not handled anyway."""
        before = {} if self._handling else self._take_signals()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
                self._handling = False

    def _take_signals(self) -> dict[signal.Signals, Any]:
        """Handle signals, and return who did so before."""
        self._handling = True
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        if before[signal.SIGHUP] is signal.SIG_IGN:
            # What nohup ignores stays ignored; a shell's background jobs can be interrupted.
            del before[signal.SIGHUP]
        for number in before:
            signal.signal(number, self.on_signal)
        return before

    def on_signal(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """Do what a signal calls for now; a handler."""
        now_s = self._now_s()
        if self._asked_s is not None:
            if now_s - self._asked_s >= _ONE_S and not self._patient:
                self.leave_at_once(EXIT_FAILED)
            return
        self._asked_s = now_s
        if not self.over:
            self._on_first()

    @property
    def asked(self) -> bool:
        """Tell whether a signal has asked for the end."""
        return self._asked_s is not None

    def seconds_left(self, default_s: float) -> float:
        """Return how long something may take that has `default_s` if no signal has come."""
        if self._asked_s is None or self._patient:
            return default_s
        return max(0.0, min(default_s, self._asked_s + _WITHIN_S - self._now_s()))

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """While this lasts, the first signal is noted in `asked`, for others to look at."""
        with self._listening(lambda: None):
            yield

    @contextlib.contextmanager
    def running(self, stop: Callable[[], object], *, patient: bool = False) -> Iterator[None]:
        """While this lasts, the first signal calls `stop`; after it, it changes nothing.

        If it has come already, `stop` is called now.  `patient`: nor does any other signal, from
        now on until the process is gone.
        """
        self._patient = patient
        with self._listening(stop):
            if self.asked:
                stop()
            try:
                yield
            finally:
                self.over = True

    @contextlib.contextmanager
    def undoing(self, undo: Callable[[], object]) -> Iterator[None]:
        """While this lasts, an end at once calls `undo` first, in a handler of signals."""
        self._undo.append(undo)
        try:
            yield
        finally:
            self._undo.remove(undo)

    def undo_last(self, undo: Callable[[], object]) -> None:
        """From now on, let an end at once call `undo`, after all that `undoing` knows."""
        self._last.append(undo)

    def watch(self, idle_within: Callable[[float], bool]) -> None:
        """Know of threads; `idle_within(seconds)` waits for them, and tells whether all ended."""
        self._idle.append(idle_within)

    def end(self, code: int, say: Callable[[], object] = lambda: None) -> None:
        """Return if Python can end the process by itself; else `say`, and end it with `code`."""
        within_s = _ASKED_THREADS_WITHIN_S if self.asked else _THREADS_WITHIN_S
        deadline_s = self._now_s() + self.seconds_left(within_s)
        if not all(idle(max(0.0, deadline_s - self._now_s())) for idle in self._idle):
            say()
            self.leave_at_once(code)

    @contextlib.contextmanager
    def _listening(self, on_first: Callable[[], object]) -> Iterator[None]:
        before, self._on_first = self._on_first, on_first
        try:
            yield
        finally:
            self._on_first = before

    def _end_before(self) -> None:
        # Not by sys.stderr, which may be in the middle of a line of its own.
        write_now(2, f"bench-server: error: {BEFORE}\n".encode())
        self.leave_at_once(EXIT_FAILED)

    def leave_at_once(self, code: int) -> None:
        """End the process with an exit code, after what must be undone; in any thread."""
        for undo in [*reversed(self._undo), *self._last]:
            # Whatever fails here, the rest has to be done.
            with contextlib.suppress(Exception):
                undo()
        self._leave_process(code)


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)

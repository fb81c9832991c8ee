"""Clients that left, until nothing runs on their memory any more; only then is it unmapped.

Unmapping and freeing may make CUDA wait for all streams of the device, and torch does some of it
without letting other threads of Python run.  So nothing is unmapped while any client's stream is
stuck behind an event that does not complete, and never on the event loop: all that is done in one
thread, which tries again whenever it is told to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from benchserver.refserver.refusal import RefusalError

_GRACE_S = 0.1
"""A stream may look busy for a moment after its last event."""

_POLL_S = 0.001


@dataclass(slots=True, eq=False)
class _Leaver:
    has_ended: Callable[[], bool]
    unmap: Callable[[], None]
    gone: Future[None] = field(default_factory=Future)

    def may_go(self) -> bool:
        try:
            return self.has_ended()
        except RefusalError:
            return False  # the device has failed: torch would end the process instead

    def go(self) -> None:
        try:
            self.unmap()
        except Exception as error:  # noqa: BLE001 - it is raised where somebody waits
            self.gone.set_exception(error)
        else:
            self.gone.set_result(None)


class Leaving:
    """What is to be unmapped; any thread may call."""

    def __init__(self, is_calm: Callable[[], bool]) -> None:
        """`is_calm`, called in the thread: whether no client's stream is stuck."""
        self._is_calm = is_calm
        self._lock = threading.Lock()
        self._leavers: list[_Leaver] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="refserver-unmap")
        self._closed = False
        self._next: Future[None] | None = None

    @property
    def count(self) -> int:
        """Return how many are still mapped."""
        return len(self._leavers)

    def add(self, has_ended: Callable[[], bool], unmap: Callable[[], None]) -> Future[None]:
        """Unmap as soon as `has_ended` says so; returns at once, with what is done after that."""
        leaver = _Leaver(has_ended, unmap)
        leaver.gone.set_running_or_notify_cancel()
        with self._lock:
            self._leavers.append(leaver)
        self.retry()
        return leaver.gone

    def retry(self) -> None:
        """Let the thread unmap what can be by now; returns at once."""
        with self._lock:
            # A round that has begun may have missed who came, or ended, after that.
            is_due = self._next is not None and not (self._next.running() or self._next.done())
            if self._leavers and not is_due and not self._closed:
                self._next = self._thread.submit(self._unmap_some)

    def close(self, at_last: Callable[[], None], within_s: float) -> bool:
        """Unmap what can be, and call a function if that was all; True if so, and in time.

        What is left is left to the process's end.
        """
        self.retry()
        with self._lock:
            if self._closed:
                return not self._leavers
            self._closed = True
            last = self._thread.submit(lambda: None if self._leavers else at_last())
        self._thread.shutdown(wait=False)
        if wait([last], within_s).not_done:
            return False
        self._thread.shutdown(wait=True)
        return not self._leavers

    def _unmap_some(self) -> None:
        leavers = tuple(self._leavers)
        ready = _ready(leavers)
        if ready and self._is_calm():
            for leaver in ready:
                leaver.go()
                with self._lock:
                    self._leavers.remove(leaver)


def _ready(leavers: Sequence[_Leaver]) -> list[_Leaver]:
    """Return those that may go, with a moment for the others."""
    end_s = time.monotonic() + _GRACE_S
    while True:
        ready = [leaver for leaver in leavers if leaver.may_go()]
        if len(ready) == len(leavers) or time.monotonic() >= end_s:
            return ready
        time.sleep(_POLL_S)

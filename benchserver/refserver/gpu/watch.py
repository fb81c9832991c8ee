"""One thread that asks whether work on a device has ended, for all who wait for it.

torch's own waits have no deadline, and a thread for each wait would let clients whose events never
complete keep all threads, and so the others, waiting.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from benchserver.refserver.copier import TimeLeft, until_ended
from benchserver.refserver.gpu.stream import DONE_WITHIN_NS, POLL_S, STOP_WITHIN_NS
from benchserver.refserver.refusal import RefusalError


@dataclass(slots=True, kw_only=True, eq=False)
class _Wait:
    """One wait; `future` gets whether the work ended in time, or why that cannot be known."""

    is_done: Callable[[], bool]
    deadline_ns: int
    future: Future[bool] = field(default_factory=Future)

    def is_over(self, now_ns: int, latest_ns: int) -> bool:
        """Ask once, and answer the future if there is an answer."""
        try:
            is_done = self.is_done()
        except Exception as error:  # noqa: BLE001 - it is raised where somebody waits
            self.future.set_exception(error)
            return True
        if is_done or now_ns >= min(self.deadline_ns, latest_ns):
            self.future.set_result(is_done)
            return True
        return False


class Watcher:
    """Waits for the ends of work; once `stopping` is set, no longer than STOP_WITHIN_NS more."""

    def __init__(
        self,
        stopping: threading.Event,
        left_s: TimeLeft,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`left_s`: how long a cancelled wait may still last, should the thread be stuck."""
        self._stopping = stopping
        self._left_s = left_s
        self._now_ns = now_ns
        self._changed = threading.Condition()
        self._waits: list[_Wait] = []
        self._closed = False
        self._thread: threading.Thread | None = None

    async def ended(self, is_done: Callable[[], bool], *, within_ns: int = DONE_WITHIN_NS) -> bool:
        """Return True as soon as `is_done` says so, False if that takes too long.

        Asks at least once.  RefusalError as `is_done` raises it, or if the watcher is closed.
        """
        wait = _Wait(is_done=is_done, deadline_ns=self._now_ns() + within_ns)
        wait.future.set_running_or_notify_cancel()
        with self._changed:
            if self._closed:
                raise RefusalError("the server is stopping")
            self._waits.append(wait)
            if self._thread is None:
                # A daemon: what is stuck in CUDA must not keep the process.
                self._thread = threading.Thread(
                    target=self._run, name="refserver-event", daemon=True
                )
                self._thread.start()
            self._changed.notify()
        future = asyncio.wrap_future(wait.future)
        return await until_ended(wait.future, future, left_s=self._left_s)

    def close(self, within_s: float) -> bool:
        """End the thread, and every wait with False; return whether it has ended in time."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(within_s)
        return self._thread is None or not self._thread.is_alive()

    def _run(self) -> None:
        latest_ns = 1 << 63
        is_hurried = False
        while True:
            with self._changed:
                while not self._waits and not self._closed:
                    self._changed.wait()
                waits, closed = tuple(self._waits), self._closed
            now_ns = self._now_ns()
            if self._stopping.is_set() and not is_hurried:
                is_hurried, latest_ns = True, now_ns + STOP_WITHIN_NS
            if closed:
                latest_ns = now_ns
            over = {wait for wait in waits if wait.is_over(now_ns, latest_ns)}
            with self._changed:
                self._waits = [wait for wait in self._waits if wait not in over]
                if self._closed and not self._waits:
                    return
            if len(over) < len(waits):
                time.sleep(POLL_S)

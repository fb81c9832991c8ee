"""Text on its way out of the process: no writer ever waits for a reader.

A reader may stop (a pager, Ctrl-S, a full pipe), and a write then blocks for as long as it likes:
in an event loop that is the end of all deadlines and of Ctrl-C.  An outlet takes text at once, and
a thread of its own writes it.  What a stopped reader leaves waiting is bounded; the rest is lost,
and that is said where it would have stood.
"""

from __future__ import annotations

import _socket  # `socket` takes as long to load as all else here, for one call of ours
import contextlib
import io
import os
import select
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

MAX_WAITING_BYTES = 4 << 20
"""An hour of lines at a sequence each half second; a stopped reader may cost no more memory."""

_WRITE_BYTES = 1 << 16
"""At once: what a pipe holds, so that progress is seen."""

_LOOK_S = 0.05
"""How often a drain looks whether time is up, which a signal can shorten."""

_JOIN_S = 1.0

SHOW_CURSOR = "\x1b[?25h"
"""What a terminal is told whose cursor a progress bar has hidden."""

SecondsLeft = Callable[[float], float]
"""Says how long something may take that has so many seconds by itself."""


def all_of_them(seconds: float) -> float:
    """Return the same: nothing shortens it."""
    return seconds


class Outlet(io.TextIOBase):
    """A text stream that never blocks who writes; use `drain` before the process ends.

    Characters that the encoding does not have are escaped.  After an error all is dropped; `error`
    says why.
    """

    def __init__(
        self,
        write: Callable[[bytes], int],
        *,
        encoding: str = "utf-8",
        descriptor: int | None = None,
        is_terminal: bool = False,
        in_memory: bool = False,
        max_waiting: int = MAX_WAITING_BYTES,
    ) -> None:
        """`write` takes bytes and returns how many it took; it may block, unless `in_memory`.

        A `descriptor` is used for `write_now` too.
        """
        self._write_bytes = write
        self._encoding = encoding
        self._descriptor = descriptor
        self._is_terminal = is_terminal
        self._in_memory = in_memory
        self._max_waiting = max_waiting
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._lost = 0
        self._full = False
        self._ending = False
        self._thread: threading.Thread | None = None
        self.error: OSError | None = None
        """Why nothing is written any more."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Return the name of the encoding, as streams do."""
        return self._encoding

    @property
    def descriptor(self) -> int | None:
        """Return the descriptor that it writes to, if it is one."""
        return self._descriptor

    @property
    def waiting(self) -> bool:
        """Tell whether anything waits still to be written."""
        return self._waiting_bytes > 0

    def isatty(self) -> bool:
        """Tell whether a person may be looking."""
        return self._is_terminal

    def writable(self) -> bool:
        """Tell that this can be written to, as streams do."""
        return True

    def flush(self) -> None:
        """Return at once: nothing waits here longer than it must."""

    def line(self, text: str) -> None:
        """Write a line."""
        self.write(f"{text}\n")

    def write(self, text: str) -> int:
        """Take a text, or drop it if too much waits already; return its length."""
        self.write_bytes(text.encode(self._encoding, "backslashreplace"))
        return len(text)

    def write_bytes(self, data: bytes) -> None:
        """Take bytes as they are; otherwise as `write`."""
        with self._changed:
            if self.error is not None or self._ending or not data:
                return
            # Not a line now and then: a reader that comes back finds a gap and all lines after it.
            self._full = self._waiting_bytes + len(data) > self._max_waiting or (
                self._full and self._waiting_bytes > self._max_waiting // 2
            )
            if self._full:
                self._lost += 1
                return
            if self._lost:
                self._take(f"... {self._lost} lines were lost: nobody read them\n".encode())
                self._lost = 0
            self._take(data)
            if self._in_memory:
                self._write_what_waits()
            elif self._thread is None:
                self._start()

    def write_now(self, text: str) -> None:
        """Write before all that waits, unless that would block; for handlers of signals."""
        if self._descriptor is not None:
            write_now(self._descriptor, text.encode(self._encoding, "backslashreplace"))

    def drain(self, within_s: float, seconds_left: SecondsLeft = all_of_them) -> str:
        """Wait until all is written, and return why it is not, or "".  Nothing is taken any more.

        As long as the reader reads, and `within_s` after it stopped; `seconds_left` may shorten
        that at any time.
        """
        waiting, since_s = -1, time.monotonic()
        while self._waiting_bytes and not self._ending:
            if self._waiting_bytes != waiting:
                waiting, since_s = self._waiting_bytes, time.monotonic()
            if seconds_left(since_s + within_s - time.monotonic()) <= 0:
                break
            with self._changed:
                if self._waiting_bytes:
                    self._changed.wait(_LOOK_S)
        with self._changed:
            self._ending = True
            self._changed.notify_all()
            left = self._waiting_bytes
        if self.error is not None:
            return self.error.strerror or type(self.error).__name__
        if left:
            return f"nobody reads it, {left} bytes are lost"
        if self._thread is not None:
            self._thread.join(_JOIN_S)
        return f"nobody read it, {self._lost} lines are lost" if self._lost else ""

    def ended_within(self, seconds: float) -> bool:
        """Tell whether nothing more will be written, after `drain`; wait at most so long for it."""
        if self._thread is None:
            return True
        self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="outlet", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the system has no thread left, and that is to be said
            self._thread = None
            self._write_what_waits()

    def _write_what_waits(self) -> None:
        """Write in the caller's thread; the lock is held."""
        before, self._ending = self._ending, True
        self._run()
        self._ending = before

    def _take(self, data: bytes) -> None:
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self._changed.notify_all()

    def _run(self) -> None:
        while data := self._next():
            try:
                self._write_all(data)
            except OSError as error:
                self._give_up(error)
                return
            except ValueError as error:  # the stream is closed
                self._give_up(OSError(0, str(error)))
                return

    def _next(self) -> bytes:
        """Wait for work and return it, or nothing at the end."""
        with self._changed:
            while not self._waiting and not self._ending:
                self._changed.wait()
            parts: list[bytes] = []
            size = 0
            while self._waiting and size < _WRITE_BYTES:
                parts.append(self._waiting.popleft())
                size += len(parts[-1])
            return b"".join(parts)

    def _write_all(self, data: bytes) -> None:
        while data:
            try:
                count = self._write_bytes(data[:_WRITE_BYTES])
            except BlockingIOError:  # another process of this terminal made it so
                _await_room(self._descriptor)
                continue
            data = data[count:]
            with self._changed:
                self._waiting_bytes -= count
                self._changed.notify_all()

    def _give_up(self, error: OSError) -> None:
        with self._changed:
            self.error = error
            self._waiting.clear()
            self._waiting_bytes = 0
            self._changed.notify_all()


def outlet_for(stream: TextIO | None) -> Outlet:
    """Return an outlet to where a stream goes; None (closed before our start) goes nowhere."""
    if stream is None:
        return Outlet(len, in_memory=True)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    with contextlib.suppress(OSError, ValueError, AttributeError):
        stream.flush()
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError, AttributeError):  # it lies in memory
        return Outlet(
            _into(stream, encoding),
            encoding=encoding,
            is_terminal=stream.isatty(),
            in_memory=True,
        )
    return outlet_to(descriptor, encoding=encoding)


def outlet_to(
    descriptor: int, *, encoding: str = "utf-8", max_waiting: int = MAX_WAITING_BYTES
) -> Outlet:
    """Return an outlet to a descriptor."""
    return Outlet(
        lambda data: os.write(descriptor, data),
        encoding=encoding,
        descriptor=descriptor,
        is_terminal=os.isatty(descriptor),
        max_waiting=max_waiting,
    )


def _into(stream: TextIO, encoding: str) -> Callable[[bytes], int]:
    def write(data: bytes) -> int:
        stream.write(data.decode(encoding))
        return len(data)

    return write


def _await_room(descriptor: int | None, within_s: float = _LOOK_S) -> bool:
    """Wait until a descriptor takes something, and tell whether it does."""
    if descriptor is None:
        return False
    waiter = select.poll()
    waiter.register(descriptor, select.POLLOUT)
    return bool(waiter.poll(within_s * 1000))


def write_now(descriptor: int, data: bytes) -> None:
    """Write what can be written without waiting, and take no lock: for handlers of signals."""
    with contextlib.suppress(OSError):
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISREG(kind):
            os.write(descriptor, data)
        elif stat.S_ISSOCK(kind):
            peer = _socket.socket(fileno=os.dup(descriptor))
            try:
                peer.send(data, _socket.MSG_DONTWAIT)
            finally:
                peer.close()
        else:
            _write_to_own(descriptor, data)


def _write_to_own(descriptor: int, data: bytes) -> None:
    """Open a pipe or a terminal once more: blocking is shared with all who have it."""
    try:
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:  # another user's
        if _await_room(descriptor, 0):
            os.write(descriptor, data)
        return
    try:
        os.write(own, data)
    finally:
        os.close(own)

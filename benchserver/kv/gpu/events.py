"""CUDA events between two processes: ours, which a request carries, and theirs, from the reply.

A server's stream waits for our event before it reads or writes our blocks; it answers with an
event of its own before its copies are done, and the data has landed when that one has completed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from benchserver.cuda import mark
from benchserver.cuda.reason import reason_of
from benchserver.errors import FatalError
from benchserver.kv.pool import EventError
from protocol.handles import EVENT_HANDLE_BYTES

_KEPT_EVENTS = 4096
"""An event must live until the server has opened it: it does so before it replies, and far fewer
requests than this are ever under way."""

_POLL_S = 30e-6

_STOP_AFTER_NS = 1_000_000_000
"""How long a run that was told to stop still waits for copies that are under way."""


class CudaEvents:
    """Makes and awaits the events of one pool.

    `stream` is the pool's own; all its work is submitted there.  Any thread may call.
    """

    def __init__(
        self,
        device: Any,
        stream: Any,
        *,
        cancel: threading.Event | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`device` is a torch.device; a set `cancel` shortens every wait to a second."""
        self._device = device
        self.stream = stream
        self._cancel = cancel
        self._now_ns = now_ns
        self._sleep = sleep
        self._kept: deque[Any] = deque(maxlen=_KEPT_EVENTS)

    def record(self) -> bytes:
        """Return the handle of an event behind all work on the stream so far.

        Raises FatalError if CUDA refuses: without an event nobody may touch the blocks.
        """
        import torch

        try:
            with torch.cuda.device(self._device):
                event = torch.cuda.Event(enable_timing=False, interprocess=True)
                event.record(self.stream)
                handle = bytes(event.ipc_handle())
        except RuntimeError as error:
            reason = reason_of(error)
            raise FatalError(
                f"{self._device}: an event for the server cannot be exported ({reason})"
            ) from error
        first = not self._kept
        self._kept.append(event)
        if first:
            mark.note()
        return handle

    def wait(self, handle: bytes, timeout_ns: int) -> None:
        """Return when the event has completed; what the stream does then comes after it.

        Raises EventError if it is not the handle of an event, cannot be opened, or if the event
        does not complete in time.
        """
        if len(handle) != EVENT_HANDLE_BYTES:
            raise EventError(
                f"an event handle of {len(handle)} bytes, expected {EVENT_HANDLE_BYTES}"
            )
        import torch

        try:
            with torch.cuda.device(self._device):
                event = torch.cuda.Event.from_ipc_handle(self._device, handle)
                self._poll(event, timeout_ns)
                # Only now: an event that never completes would hold up the stream for ever.
                self.stream.wait_event(event)
        except RuntimeError as error:
            raise EventError(
                f"the server's event cannot be opened or queried ({reason_of(error)})"
            ) from error

    def _poll(self, event: Any, timeout_ns: int) -> None:
        """Ask again and again: torch's own wait has no deadline."""
        started_ns = self._now_ns()
        deadline_ns = started_ns + timeout_ns
        stopping = False
        while not event.query():
            now_ns = self._now_ns()
            if not stopping and self._cancel is not None and self._cancel.is_set():
                stopping = True
                deadline_ns = min(deadline_ns, now_ns + _STOP_AFTER_NS)
            if now_ns >= deadline_ns:
                waited_s = (now_ns - started_ns) / 1e9
                raise EventError(f"the server's event did not complete within {waited_s:.3g} s")
            self._sleep(_POLL_S)

"""Streams, and events on them that two processes share.

A client's event says when its memory may be read or written; ours, whose handle a reply carries,
when we are done.  A reply leaves before that.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from benchserver.clock import NS_PER_S
from benchserver.cuda import mark
from benchserver.refserver.gpu.device import refusing
from benchserver.refserver.refusal import RefusalError
from protocol.handles import EVENT_HANDLE_BYTES

KEPT_EVENTS = 2048
"""An exported event must live until its client has opened it; the real server keeps as many
(0.5.6)."""

MAX_OPENED_EVENTS = 256
"""A client's event is kept until long after the stream's wait for it was submitted."""

DONE_WITHIN_NS = 30 * NS_PER_S
"""Copies take milliseconds; longer than this, only a client's event that never completes."""

STOP_WITHIN_NS = NS_PER_S
"""How long a server that is told to stop waits for copies that are under way."""

POLL_S = 50e-6

TORCH_STREAMS = 32
"""torch has so many streams a device, and gives them out in turns, in use or not."""


class Submitted:
    """Work that was submitted: `handle` is the event behind it, for the client.

    `kept` is what must live until it is done.
    """

    def __init__(self, event: Any, handle: bytes, kept: object = None) -> None:
        self.handle = handle
        self._event = event
        self._kept = kept

    def is_done(self) -> bool:
        """Tell whether the work has ended; RefusalError if the device failed."""
        with refusing("an event of this server"):
            return bool(self._event.query())


class Stream(Protocol):
    """One instance's stream; all its transfers are submitted there, and run in that order."""

    device: Any

    def running(self) -> AbstractContextManager[None]:
        """Submit what this thread does in the block to the stream."""
        ...

    def beside(self) -> AbstractContextManager[None]:
        """Submit what this thread does in the block to another stream."""
        ...

    def wait_for(self, handle: bytes) -> None:
        """Let the stream wait for a client's event; RefusalError if it cannot be opened."""
        ...

    def record(self, kept: object = None) -> Submitted:
        """Return the end of all that was submitted so far."""
        ...

    def is_idle(self) -> bool:
        """Tell whether all that was submitted is done."""
        ...


class Streams:
    """torch's streams, and the events that are exported on them; any thread may call.

    Two clients share a stream only where all others are taken: one that waits for an event that
    does not complete must keep nobody else waiting.
    """

    def __init__(self) -> None:
        self.exported: deque[Any] = deque(maxlen=KEPT_EVENTS)
        """The server's events, which must live until clients have opened them."""
        self._lock = threading.Lock()
        self._taken: Counter[tuple[int, int]] = Counter()

    def take(self, device: Any) -> Any:
        """Return an idle stream for a client, who gives it back; RefusalError if there is none."""
        with self._lock:
            stream = self._find(device)
            self._taken[_key(stream)] += 1
            return stream

    def give(self, stream: Any) -> None:
        """End one use of a stream that `take` returned."""
        with self._lock:
            self._taken[_key(stream)] -= 1

    def idle(self, device: Any) -> Any:
        """Return a stream for a while; RefusalError if all are busy."""
        with self._lock:
            return self._find(device)

    def _find(self, device: Any) -> Any:
        import torch

        shared = None
        for _ in range(TORCH_STREAMS):
            stream = torch.cuda.Stream(device=device)
            if stream.query():
                if self._taken[_key(stream)] <= 0:
                    return stream
                shared = shared or stream
        if shared is None:
            raise RefusalError(f"all {TORCH_STREAMS} streams of the GPU are busy")
        return shared


def _key(stream: Any) -> tuple[int, int]:
    return stream.device.index, stream.cuda_stream


class CudaStream:
    """A stream of one device, one client's own."""

    def __init__(self, ordinal: int, streams: Streams) -> None:
        import torch

        self.device: Any = torch.device("cuda", ordinal)
        self._streams = streams
        self._opened: deque[Any] = deque(maxlen=MAX_OPENED_EVENTS)
        self._stream: Any = streams.take(self.device)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Submit what this thread does in the block to the stream, and use its device."""
        import torch

        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            yield

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Submit what this thread does in the block to an idle stream of the device."""
        import torch

        stream = self._streams.idle(self.device)
        with torch.cuda.device(self.device), torch.cuda.stream(stream):
            yield

    def wait_for(self, handle: bytes) -> None:
        """Let the stream wait for a client's event; RefusalError if it cannot be opened."""
        import torch

        check_event_handle(handle)
        with refusing("the event that the request carries cannot be opened"):
            event = torch.cuda.Event.from_ipc_handle(self.device, handle)
            self._stream.wait_event(event)
        self._opened.append(event)

    def record(self, kept: object = None) -> Submitted:
        """Return the end of all that was submitted to the current stream so far."""
        import torch

        with refusing("an event cannot be exported"):
            event = torch.cuda.Event(enable_timing=False, interprocess=True)
            event.record(torch.cuda.current_stream(self.device))
            handle = bytes(event.ipc_handle())
        first = not self._streams.exported
        self._streams.exported.append(event)
        if first:
            mark.note()
        return Submitted(event, handle, kept)

    def is_idle(self) -> bool:
        """Tell whether all that was submitted is done; RefusalError if the device failed."""
        with refusing("a stream of this server"):
            return bool(self._stream.query())

    def close(self) -> None:
        """Leave the stream to others; it is idle."""
        self._streams.give(self._stream)


def check_event_handle(handle: bytes) -> None:
    """Raise RefusalError for what cannot be the handle of an event."""
    if len(handle) != EVENT_HANDLE_BYTES:
        raise RefusalError(
            f"an event handle of {len(handle)} bytes, expected {EVENT_HANDLE_BYTES} from a client "
            "whose KV lies on a GPU"
        )


def wait_until(
    done: Callable[[], bool],
    *,
    stopping: threading.Event,
    within_ns: int = DONE_WITHIN_NS,
    now_ns: Callable[[], int] = time.monotonic_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Ask until the answer is yes, and return True; False if it takes too long.

    Blocks a thread: torch's own waits have no deadline.  A server that stops waits no longer
    than STOP_WITHIN_NS.
    """
    deadline_ns = now_ns() + within_ns
    hurried = False
    while not done():
        if stopping.is_set() and not hurried:
            hurried = True
            deadline_ns = min(deadline_ns, now_ns() + STOP_WITHIN_NS)
        if now_ns() >= deadline_ns:
            return False
        sleep(POLL_S)
    return True

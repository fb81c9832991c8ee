"""All that GPU clients share in one server: devices, pinned L1, streams, threads.

Costs nothing until the first GPU client registers (or the server was told to be ready for one):
torch is loaded then, and the arena pinned.

A call of CUDA's cannot be ended from outside, and may wait for a client that never goes on.  So
every thread that calls CUDA has one purpose, or one client; nobody waits for one without a
deadline; and what is stuck when the server ends goes with the process.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from weakref import WeakSet

from benchserver.cuda import mark
from benchserver.refserver.copier import Copier
from benchserver.refserver.gpu.device import (
    Device,
    drop_frames,
    pin,
    refusing,
    unpin,
    visible_devices,
)
from benchserver.refserver.gpu.driver import OpenHandles
from benchserver.refserver.gpu.leaving import Leaving
from benchserver.refserver.gpu.memory import ClientMemory, CudaDescriptor, check_descriptor
from benchserver.refserver.gpu.stream import CudaStream, Streams
from benchserver.refserver.gpu.watch import Watcher
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.store.arena import Arena, Bytes

MAX_HASHERS = 16
"""MD5 is slow, 0.46 GB/s a thread: digests have threads of their own, beside the copies."""

PATIENCE_S = 1.5
"""How long the end of a server waits for threads that may be stuck in CUDA, all together."""

_AT_LEAST_S = 0.1
_UNMAP_WITHIN_S = 8.0
"""Nothing is stuck then; unpinning takes a while for each GiB."""

_given_up: list[CudaRuntime] = []
"""What was left mapped at a server's end: if it were dropped, torch would unmap, and so wait."""

_CALM_WITHIN_S = 0.2
_CALM_POLL_S = 0.001


def must_leave_at_once() -> bool:
    """Tell whether servers of this process left what only its end can end.

    It must not come by Python's way then, which joins threads and drops objects.
    """
    threads = [thread.name for thread in threading.enumerate()]
    return bool(_given_up) or any(name.startswith("refserver-") for name in threads)


class CudaRuntime:
    """The CUDA side of one server."""

    def __init__(self) -> None:
        self.loader = Copier(1, name="refserver-load", left_s=lambda: 0.0)
        """Nothing ends an import, and no memory of a client depends on it: nobody waits for it."""
        threads = min(MAX_HASHERS, os.cpu_count() or 1)
        self.hashers = Copier(threads, name="refserver-md5", left_s=self._left_s)
        self.stopping = threading.Event()
        self.watcher = Watcher(self.stopping, self._left_s)
        self.leaving = Leaving(self._is_calm)
        self._stops_at_s = math.inf
        self._client_threads: WeakSet[Copier] = WeakSet()
        self._all_ended = True
        self._lock = threading.Lock()
        self._devices: Mapping[str, Device] = {}
        self._pinned: Bytes | None = None
        self._driver = OpenHandles()
        self._streams = Streams()
        self._mapped: dict[ClientMemory, CudaStream] = {}

    def _left_s(self) -> float:
        return self._stops_at_s - time.monotonic()

    def client_thread(self) -> Copier:
        """Return a thread for all that is submitted for one client."""
        thread = Copier(1, name="refserver-gpu", left_s=self._left_s)
        self._client_threads.add(thread)
        return thread

    def load(self, arena: Arena) -> str:
        """Load torch, find the devices and pin the arena; done once, belongs in `loader`.

        Returns a line for the journal, or "".  RefusalError without torch or a device.
        """
        if self._devices:
            return ""
        devices = visible_devices()
        if self.stopping.is_set():
            raise RefusalError("the server is stopping")
        mark.place()
        memory = arena.view(0, arena.nbytes)
        problem = pin(memory)
        self._devices = devices
        if problem:
            return f"L1 is not pinned ({problem}): copies to and from GPUs are slower"
        self._pinned = memory
        return ""

    def open(self, handles: Sequence[CudaDescriptor]) -> tuple[ClientMemory, CudaStream]:
        """Map a client's tensors, and return them with a stream of their device.

        Belongs in the client's thread.
        """
        device = self._device_of(handles)
        for handle in handles:
            check_descriptor(handle, device)
        with refusing("a stream cannot be made"):
            stream = CudaStream(device.ordinal, self._streams)
        memory = ClientMemory(device, self._driver)
        with self._lock:
            self._mapped[memory] = stream
        try:
            # The events of shares hold up this stream alone.
            with refusing("the KV tensors cannot be mapped"), stream.running():
                memory.map(handles)
        except BaseException as error:
            drop_frames(error)
            self.leave(memory)
            raise
        mark.note()
        return memory, stream

    def leave(self, memory: ClientMemory) -> None:
        """Unmap a client's tensors as soon as its stream is idle; any thread may call."""
        with self._lock:
            stream = self._mapped.get(memory)
        if stream is not None:
            self.leaving.add(stream.is_idle, lambda: self.unmap(memory))

    def unmap(self, memory: ClientMemory) -> None:
        """Unmap a client's tensors; no work on them may be under way.  For `leaving`."""
        memory.close()
        with self._lock:
            stream = self._mapped.pop(memory, None)
        if stream is not None:
            stream.close()

    def _is_calm(self) -> bool:
        """Tell whether each client's stream comes to its end soon."""
        with self._lock:
            waiting = set(self._mapped.values())
        end_s = time.monotonic() + _CALM_WITHIN_S
        while True:
            waiting = {stream for stream in waiting if not _has_ended(stream)}
            if not waiting or time.monotonic() >= end_s:
                return not waiting
            time.sleep(_CALM_POLL_S)

    def stop_waiting(self) -> None:
        """Let no wait for a device last longer than a moment: the server ends."""
        if not self.stopping.is_set():
            self._stops_at_s = time.monotonic() + PATIENCE_S
            self.stopping.set()

    def end_threads(self) -> None:
        """End the threads except the one that unmaps; what is stuck is given up."""
        self.stop_waiting()
        self.loader.close(0)
        closes = [thread.close for thread in (self.hashers, *self._client_threads)]
        for close in (*closes, self.watcher.close):
            if not close(max(_AT_LEAST_S, self._left_s())):
                self._all_ended = False

    def close(self) -> None:
        """End the threads, unmap what is left, unpin the arena.

        What a stream that has not come to its end may still touch is left to the process's end:
        CUDA would wait for it, for ever if need be.
        """
        self.end_threads()
        if self._all_ended:
            for memory in tuple(self._mapped):
                self.leave(memory)
        if not self.leaving.close(self._unpin, _UNMAP_WITHIN_S) or self._mapped:
            _given_up.append(self)

    def _unpin(self) -> None:
        if self._pinned is not None and self._all_ended and not self._mapped:
            unpin(self._pinned)
        self._pinned = None

    def _device_of(self, handles: Sequence[CudaDescriptor]) -> Device:
        uuids = sorted({handle.device_uuid.lower() for handle in handles})
        if len(uuids) > 1:
            raise RefusalError(f"KV tensors on {len(uuids)} devices, expected one a client")
        device = self._devices.get(uuids[0])
        if device is None:
            raise RefusalError(
                f"device {uuids[0]!a} is not visible to this server, which sees "
                f"{', '.join(self._devices)}; start it with the same CUDA_VISIBLE_DEVICES"
            )
        return device


def _has_ended(stream: CudaStream) -> bool:
    try:
        return stream.is_idle()
    except RefusalError:
        return True  # the device has failed: it waits for nothing any more

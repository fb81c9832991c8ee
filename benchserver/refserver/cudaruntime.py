"""All that GPU clients share in one server: devices, pinned L1, exported events, threads.

Costs nothing until the first GPU client registers (or the server was told to be ready for one):
torch is loaded then, and the arena pinned.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from benchserver.refserver.arena import Arena, Bytes
from benchserver.refserver.copier import Copier
from benchserver.refserver.cudadevice import (
    Device,
    pin,
    refusing,
    remove_events_at_exit,
    unpin,
    visible_devices,
)
from benchserver.refserver.cudadriver import OpenHandles
from benchserver.refserver.cudamemory import ClientMemory, CudaDescriptor
from benchserver.refserver.cudastream import KEPT_EVENTS, CudaStream
from benchserver.refserver.refusal import RefusalError

MAX_HASHERS = 16
"""MD5 is slow, 0.46 GB/s a thread: digests have threads of their own, beside the copies."""

MAX_WAITERS = 16
"""Each waits for one transfer; a bench has as many under way as it has ranks."""


class CudaRuntime:
    """The CUDA side of one server; any thread may call `load` and `open`."""

    def __init__(self) -> None:
        self.hashers = Copier(min(MAX_HASHERS, os.cpu_count() or 1), name="refserver-md5")
        self.waiters = Copier(MAX_WAITERS, name="refserver-event")
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._devices: Mapping[str, Device] = {}
        self._pinned: Bytes | None = None
        self._driver = OpenHandles()
        self._exported: deque[Any] = deque(maxlen=KEPT_EVENTS)
        self._mapped: dict[ClientMemory, CudaStream] = {}

    def load(self, arena: Arena) -> str:
        """Load torch, find the devices and pin the arena; done once.

        Returns a line for the journal, or "".  RefusalError without torch or a device.
        """
        with self._lock:
            if self._devices:
                return ""
            devices = visible_devices()
            remove_events_at_exit()
            memory = arena.view(0, arena.nbytes)
            problem = pin(memory)
            self._devices = devices
            if problem:
                return f"L1 is not pinned ({problem}): copies to and from GPUs are slower"
            self._pinned = memory
            return ""

    def open(self, handles: Sequence[CudaDescriptor]) -> tuple[ClientMemory, CudaStream]:
        """Map a client's tensors, and return them with a stream of their device."""
        device = self._device_of(handles)
        memory = ClientMemory(handles, device, self._driver)
        stream = None
        try:
            with refusing("a stream cannot be made"):
                stream = CudaStream(device.ordinal, self._exported)
        finally:
            if stream is None:
                memory.close()
        with self._lock:
            self._mapped[memory] = stream
        return memory, stream

    def unmap(self, memory: ClientMemory) -> None:
        """Unmap a client's tensors; no work on them may be under way."""
        with self._lock:
            self._mapped.pop(memory, None)
        memory.close()

    def stop_waiting(self) -> None:
        """Let no wait for a device last longer than a moment: the server ends."""
        self.stopping.set()

    def close(self) -> None:
        """End the threads, unmap what is left, unpin the arena.

        What a stream that has not come to its end may still touch is left to the process's end:
        CUDA would wait for it, for ever if need be.
        """
        self.stop_waiting()
        self.hashers.close()
        self.waiters.close()
        for memory, stream in tuple(self._mapped.items()):
            if _has_ended(stream):
                self.unmap(memory)
        if self._pinned is not None and not self._mapped:
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
        return False  # the device has failed, and would refuse to unmap too

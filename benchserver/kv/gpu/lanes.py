"""Ways between devices and the host: pinned buffers, few of them, for all pools of a process.

Pinned memory is taken from everybody else on the machine.  A thread borrows a lane for as long as
it copies, whatever pool it copies for, and gives it back.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchserver.kv.pattern import U8

SLICE_BYTES = 32 << 20
"""At most this much pinned memory a lane (or one page, if that is larger).  Smaller slices would
pay the device's latency too often."""

MAX_LANES = 16
"""So all pools of a process together pin 512 MiB at most, whatever their number."""


class Lane:
    """A buffer of the host and a stream on each device it was used for: one thread's at a time.

    Every method waits for its copy.
    """

    def __init__(self) -> None:
        self.stream: Any = None
        self._streams: dict[Any, Any] = {}
        self._host: Any = None

    def prepare(self, device: Any, nbytes: int) -> None:
        """Have `nbytes` bytes, and a stream on the device; all devices are of one kind."""
        import torch

        on_host = device.type == "cpu"
        if self._host is None or self._host.numel() < nbytes:
            self._host = None  # given back before more is taken
            self._host = torch.empty(nbytes, dtype=torch.uint8, pin_memory=not on_host)
        if not on_host and device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        self.stream = self._streams.get(device)

    @contextlib.contextmanager
    def after(self, stream: Any) -> Iterator[None]:
        """Work on the lane's stream, behind what has been submitted to another."""
        import torch

        if self.stream is None:
            yield
            return
        self.stream.wait_stream(stream)
        with torch.cuda.stream(self.stream):
            yield

    def fetch(self, pages: Any, blocks: Any, *, widen: bool) -> U8:
        """Return the pages of blocks (axis 2) as bytes; valid until the lane is used again.

        `widen` takes them as bfloat16 and makes float32 of them.
        """
        import torch

        part = pages.index_select(2, blocks).reshape(-1)
        if widen:
            # The sign that int32 gets is shifted out; what comes in are the zeros of a float32.
            part = part.view(torch.int16).to(torch.int32).bitwise_left_shift_(16)
        part = part.view(torch.uint8)
        host = self._host[: part.numel()]
        host.copy_(part, non_blocking=True)
        if self.stream is not None:
            self.stream.synchronize()
        data: U8 = host.numpy()
        return data

    def put(self, data: U8, pages: Any, blocks: Any, stream: Any) -> None:
        """Write bytes to the pages of blocks (axis 2), on the current stream, which is `stream`."""
        host = self._host[: data.size]
        np.copyto(host.numpy(), data)
        shape = (pages.shape[0], pages.shape[1], blocks.numel(), pages.shape[3])
        part = host.to(pages.device, non_blocking=True).view(pages.dtype).view(shape)
        pages.index_copy_(2, blocks, part)
        if stream is not None:
            stream.synchronize()


class Lanes:
    """At most `limit` lanes; a thread that finds none free waits.  Any thread may call."""

    def __init__(self, limit: int = MAX_LANES) -> None:
        self._room = threading.Semaphore(limit)
        self._free: list[Lane] = []

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[Lane]:
        """Lend a lane; a thread must not borrow a second one meanwhile."""
        with self._room:
            try:
                lane = self._free.pop()  # the last one used: few are made where few are needed
            except IndexError:
                lane = Lane()
            try:
                yield lane
            finally:
                self._free.append(lane)

"""Whole chunks between pages on a device and the host: for digests, and for engine_driven.

Every thread has a lane of its own: a stream beside the pool's, and a pinned buffer of the host,
which holds at most one slice of a chunk.  The device gathers a slice's pages into one piece, the
copy engine brings it to the buffer, and meanwhile other threads hash theirs.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchserver.kv.device_layout import GroupView, PoolView
from benchserver.kv.device_queue import DeviceQueue
from benchserver.kv.pattern import U8
from benchserver.kv.segment import WorkCancelledError

SLICE_BYTES = 32 << 20
"""At most this much pinned memory a thread (or one page, if that is larger): 16 threads pin
512 MiB.  Smaller slices would pay the device's latency too often."""

Box = tuple[slice, slice, slice]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """How an array [outer, inner, block] of pages is cut into pieces of at most `limit` bytes.

    Pieces are in order and each is contiguous in the array; a piece is at least one page.
    """

    outer: int
    inner: int
    blocks: int
    page_bytes: int
    limit: int

    def boxes(self) -> Iterator[Box]:
        """Yield the index ranges of every piece."""
        row = self.blocks * self.page_bytes
        if self.inner * row <= self.limit:
            for outer in _steps(self.outer, self.limit // (self.inner * row)):
                yield outer, slice(0, self.inner), slice(0, self.blocks)
            return
        for outer in _steps(self.outer, 1):
            for inner in _steps(self.inner, self.limit // row):
                for blocks in _steps(self.blocks, self.limit // self.page_bytes):
                    yield outer, inner, blocks


def _steps(count: int, step: int) -> Iterator[slice]:
    step = max(1, step)
    for start in range(0, count, step):
        yield slice(start, min(count, start + step))


def lane_bytes(views: Sequence[GroupView], blocks_per_chunk: int) -> int:
    """Return how large the pinned buffer of a lane is."""
    pages = [hashed_bytes(view, view.page_bytes) for view in views]
    chunks = [
        len(view.layers) * view.planes * blocks_per_chunk * page
        for view, page in zip(views, pages, strict=True)
    ]
    return max(*pages, min(SLICE_BYTES, max(chunks)))


def is_widened(view: GroupView) -> bool:
    """Tell whether the digest takes this group's bytes as float32 (see `benchserver.kv.digest`)."""
    return view.spec.dtype.name == "bfloat16"


def hashed_bytes(view: GroupView, nbytes: int) -> int:
    """Return how many bytes the digest takes for `nbytes` bytes of pages."""
    return 2 * nbytes if is_widened(view) else nbytes


class Lane:
    """One thread's way between the device and the host.  Every method waits for its copy."""

    def __init__(self, device: Any, nbytes: int) -> None:
        """Make a stream on the device, and a buffer of `nbytes` bytes."""
        import torch

        on_host = device.type == "cpu"
        self.stream: Any = None if on_host else torch.cuda.Stream(device)
        self._host: Any = torch.empty(nbytes, dtype=torch.uint8, pin_memory=not on_host)

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


class Chunks:
    """Copies chunks of a pool.  Every method may be called by many threads at once."""

    def __init__(
        self,
        view: PoolView,
        queue: DeviceQueue,
        *,
        blocks_per_chunk: int,
        cancel: threading.Event,
    ) -> None:
        """`queue` is the pool's: chunks are read behind what it has been given so far."""
        self._groups = view.groups
        self._queue = queue
        self._cancel = cancel
        self._lane_bytes = lane_bytes(view.groups, blocks_per_chunk)
        self._lanes = threading.local()

    def hashed_slices(self, block_ids: Sequence[int]) -> Iterator[U8]:
        """Yield what the digest of a chunk is made of, in order, slice by slice.

        A slice lies in pinned memory of this thread, and is valid until the next is asked for.
        """
        lane = self._lane()
        for view in self._groups:
            widen, page = is_widened(view), hashed_bytes(view, view.page_bytes)
            for box in self._boxes(len(view.layers), view.planes, block_ids, page):
                if self._cancel.is_set():
                    raise WorkCancelledError
                with self._queue.working("read a chunk"), lane.after(self._queue.stream):
                    ids = self._queue.upload(block_ids[box[2]])
                    data = lane.fetch(view.pages[box[:2]], ids, widen=widen)
                yield data

    def gather(self, group: int, block_ids: Sequence[int], out: npt.NDArray[np.uint8]) -> None:
        """Copy a chunk object of a group out of the blocks; ValueError if `out` does not fit."""
        view = self._groups[group]
        target = _flat_object(view, len(block_ids), out)
        pages, lane = view.pages.transpose(0, 1), self._lane()
        for box in self._boxes(view.planes, len(view.layers), block_ids, view.page_bytes):
            with self._queue.working("read a chunk"), lane.after(self._queue.stream):
                ids = self._queue.upload(block_ids[box[2]])
                data = lane.fetch(pages[box[:2]], ids, widen=False)
            part = target[box]
            part[...] = data.reshape(part.shape)

    def scatter(self, group: int, block_ids: Sequence[int], data: npt.NDArray[np.uint8]) -> None:
        """Copy a chunk object into the blocks, which hold it then; ValueError if it is no such."""
        view = self._groups[group]
        source = _flat_object(view, len(block_ids), data)
        pages, lane = view.pages.transpose(0, 1), self._lane()
        for box in self._boxes(view.planes, len(view.layers), block_ids, view.page_bytes):
            with self._queue.working("write a chunk"):
                ids = self._queue.upload(block_ids[box[2]])
                lane.put(source[box].reshape(-1), pages[box[:2]], ids, self._queue.stream)

    def _boxes(
        self, outer: int, inner: int, block_ids: Sequence[int], page_bytes: int
    ) -> Iterator[Box]:
        return Slices(
            outer=outer,
            inner=inner,
            blocks=len(block_ids),
            page_bytes=page_bytes,
            limit=self._lane_bytes,
        ).boxes()

    def _lane(self) -> Lane:
        """Return this thread's lane, which ends with the thread or with this."""
        lane: Lane | None = getattr(self._lanes, "lane", None)
        if lane is None:
            with self._queue.working(f"{self._lane_bytes} bytes of pinned host memory"):
                lane = self._lanes.lane = Lane(self._queue.device, self._lane_bytes)
        return lane


def _flat_object(
    view: GroupView, blocks: int, data: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint8]:
    """Return a chunk object as [plane, layer, block, byte of a page]; ValueError for a wrong size.

    A view of `data`, so that writing to it writes there.
    """
    shaped = data.reshape(view.planes, len(view.layers), blocks, view.page_bytes)
    if not np.may_share_memory(shaped, data):
        raise ValueError("a chunk object in memory that is not contiguous")
    return shaped

"""Whole chunks between pages on a device and the host: for digests, and for engine_driven.

A thread borrows a lane: a stream beside the pool's, and a pinned buffer of the host, which holds at
most one slice of a chunk.  The device gathers a slice's pages into one piece, the copy engine
brings it to the buffer, and meanwhile other threads hash theirs.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchserver.errors import WorkCancelledError
from benchserver.kv.gpu import lanes
from benchserver.kv.gpu.lanes import Lane, Lanes
from benchserver.kv.gpu.queue import DeviceQueue
from benchserver.kv.gpu.views import GroupView, PoolView
from benchserver.kv.pattern import U8

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
    return max(*pages, min(lanes.SLICE_BYTES, max(chunks)))


def is_widened(view: GroupView) -> bool:
    """Tell whether the digest takes this group's bytes as float32 (see `benchserver.kv.digest`)."""
    return view.spec.dtype.name == "bfloat16"


def hashed_bytes(view: GroupView, nbytes: int) -> int:
    """Return how many bytes the digest takes for `nbytes` bytes of pages."""
    return 2 * nbytes if is_widened(view) else nbytes


class Chunks:
    """Copies chunks of a pool.  Every method may be called by many threads at once."""

    def __init__(
        self,
        view: PoolView,
        queue: DeviceQueue,
        *,
        blocks_per_chunk: int,
        cancel: threading.Event,
        lanes: Lanes | None = None,
    ) -> None:
        """`queue` is the pool's: chunks are read behind what it has been given so far.

        `lanes` are shared with other pools, or the pool's own.
        """
        self._groups = view.groups
        self._queue = queue
        self._cancel = cancel
        self._lane_bytes = lane_bytes(view.groups, blocks_per_chunk)
        self._lanes = lanes or Lanes()

    def hashed_slices(self, block_ids: Sequence[int]) -> Iterator[U8]:
        """Yield what the digest of a chunk is made of, in order, slice by slice.

        A slice lies in pinned memory, and is valid until the next is asked for.
        """
        with self._lane() as lane:
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
        pages = view.pages.transpose(0, 1)
        with self._lane() as lane:
            for box in self._boxes(view.planes, len(view.layers), block_ids, view.page_bytes):
                with self._queue.working("read a chunk"), lane.after(self._queue.stream):
                    ids = self._queue.upload(block_ids[box[2]])
                    data = lane.fetch(pages[box[:2]], ids, widen=False)
                part = target[box]
                part[...] = data.reshape(part.shape)

    def scatter(self, group: int, block_ids: Sequence[int], data: npt.NDArray[np.uint8]) -> None:
        """Copy a chunk object into the blocks, which hold it then; ValueError if it is not one."""
        view = self._groups[group]
        source = _flat_object(view, len(block_ids), data)
        pages = view.pages.transpose(0, 1)
        with self._lane() as lane:
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

    @contextlib.contextmanager
    def _lane(self) -> Iterator[Lane]:
        """Borrow a lane that is large enough for this pool."""
        with self._lanes.borrowed() as lane:
            with self._queue.working(f"{self._lane_bytes} bytes of pinned host memory"):
                lane.prepare(self._queue.device, self._lane_bytes)
            yield lane


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

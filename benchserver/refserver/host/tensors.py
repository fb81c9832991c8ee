"""A client's tensors in shared memory of the host, mapped.

A client that truncates a segment it registered can kill this process by SIGBUS, as it can kill
the real server; nothing in POSIX shared memory prevents it.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Sequence

from benchserver.refserver.pages.checksums import HashedLayer
from benchserver.refserver.pages.layout import KvLayout
from benchserver.refserver.pages.transfer import Pages, paged_view, tensor_over
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.store.arena import unmap
from benchserver.refserver.store.segments import open_segment
from protocol.dtypes import ITEM_BYTES
from protocol.handles import CpuShmHandle
from protocol.values import clip

MAX_SEGMENT_NAME = 255


class MappedTensors:
    """The tensors of one registration; RefusalError if they cannot be mapped."""

    def __init__(self, layout: KvLayout, handles: Sequence[CpuShmHandle]) -> None:
        self._layout = layout
        self._dtypes = tuple(handle.dtype for handle in handles)
        self._segments = _map_segments(handles)
        self._tensors = [tensor_over(self._segments[_plain(h.shm_name)], h) for h in handles]

    @property
    def num_blocks(self) -> int:
        """Return how many blocks the tensor has that has the fewest."""
        return min(layer.num_blocks for layer in self.hashed_layers())

    def pages(self) -> list[Pages]:
        """Return every layer as [plane][block][slot][head][element]; drop it after use."""
        views = list(self._tensors)
        for group in self._layout.groups:
            for layer in group.layers:
                views[layer] = paged_view(self._tensors[layer], group.geometry)
        return views

    def hashed_layers(self) -> list[HashedLayer]:
        """Return every layer in its own order of axes; drop it after use."""
        columns = zip(self._tensors, self._layout.formats, self._dtypes, strict=True)
        return [HashedLayer(tensor=t, form=f, dtype=d) for t, f, d in columns]

    def order_after(self, event: bytes) -> None:
        """Do nothing: on the host, a client's request comes after its writes."""

    def read(self, layer: int, block_ids: Sequence[int]) -> Pages:
        """Return a copy of blocks as [plane][block][slot][head][element]."""
        return self.pages()[layer][:, list(block_ids)]

    def write(self, layer: int, block_ids: Sequence[int], data: Pages) -> None:
        """Replace blocks."""
        self.pages()[layer][:, list(block_ids)] = data

    def unmap(self) -> None:
        """Let go of the memory."""
        self._tensors.clear()
        for segment in self._segments.values():
            unmap(segment)
        self._segments.clear()


def _plain(name: str) -> str:
    return name.removeprefix("/")


def _map_segments(handles: Sequence[CpuShmHandle]) -> dict[str, mmap.mmap]:
    """Map each distinct segment once, as far as any tensor needs it."""
    sizes: dict[str, int] = {}
    for handle in handles:
        _check_extent(handle)
        name = _plain(handle.shm_name)
        sizes[name] = max(sizes.get(name, 0), handle.nbytes)
    segments: dict[str, mmap.mmap] = {}
    try:
        for name, nbytes in sizes.items():
            segments[name] = _map_segment(name, nbytes)
    except RefusalError:
        for segment in segments.values():
            unmap(segment)
        raise
    return segments


def _check_extent(handle: CpuShmHandle) -> None:
    # Zero strides make a tensor larger than its memory; no paged cache looks like that.
    item_bytes = ITEM_BYTES[handle.dtype]
    if math.prod(handle.shape) * item_bytes > handle.nbytes:
        raise RefusalError(f"a tensor of shape {handle.shape} overlaps itself")


def _map_segment(name: str, nbytes: int) -> mmap.mmap:
    if not 0 < len(name.encode()) <= MAX_SEGMENT_NAME or "/" in name or "\0" in name:
        raise RefusalError(f"{clip(name)} is not the name of a shared-memory segment")
    try:
        descriptor = open_segment(name)
    except OSError as error:
        raise RefusalError(f"segment {clip(name)}: {error}") from error
    try:
        size = os.fstat(descriptor).st_size
        if size < nbytes:
            raise RefusalError(f"segment {clip(name)} has {size} bytes, expected {nbytes}")
        return mmap.mmap(descriptor, nbytes)
    except OSError as error:
        raise RefusalError(f"segment {clip(name)}: {error}") from error
    finally:
        os.close(descriptor)

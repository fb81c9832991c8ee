"""Copies between a client's paged tensors and chunk objects; one copy, straight, either way.

Runs in a thread: everything it needs is an argument, and all block ids have been checked.  A
layer is seen as [plane][block][slot][head][element] whatever its own order of axes is, and
neighbouring block ids are copied as one run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchserver.refserver.arena import Bytes
from benchserver.refserver.layout import AXES, ITEM_BYTES, GroupLayout, KvLayout, LayerGeometry
from protocol.handles import CpuShmHandle

Pages = npt.NDArray[np.unsignedinteger[Any]]

_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32}
"""Elements are moved as unsigned integers: no copy may change a bit, NaN patterns included."""


def word_of(dtype: str) -> type[np.unsignedinteger[Any]]:
    """Return the integer type that is as wide as an element of `dtype`."""
    return _WORDS[ITEM_BYTES[dtype]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkCopy:
    """One chunk's part of a transfer.

    `block_ids` holds one list a kernel group, of the whole chunk.  `skip_blocks` says how many of
    each list's leading blocks stay untouched.
    """

    data: Bytes
    block_ids: tuple[tuple[int, ...], ...]
    skip_blocks: tuple[int, ...]


def tensor_over(buffer: Any, handle: CpuShmHandle) -> Pages:
    """Return the tensor that a descriptor names, over its mapped segment."""
    word = word_of(handle.dtype)
    item_bytes = np.dtype(word).itemsize
    # An axis of one element may have any stride, also one that numpy cannot hold.
    strides = [s if n > 1 else 0 for n, s in zip(handle.shape, handle.stride, strict=True)]
    tensor: Pages = np.ndarray(
        handle.shape,
        dtype=word,
        buffer=buffer,
        offset=handle.storage_offset * item_bytes,
        strides=[stride * item_bytes for stride in strides],
    )
    return tensor


def paged_view(tensor: Pages, geometry: LayerGeometry) -> Pages:
    """Return a tensor with its axes as [plane][block][slot][head][element]; no copy."""
    axes = AXES.get(geometry.form)
    view: Pages = (
        tensor[np.newaxis, :, :, np.newaxis, :] if axes is None else tensor.transpose(*axes, 4)
    )
    return view


def runs(block_ids: Sequence[int], first: int) -> Iterator[tuple[int, int, int]]:
    """Yield (position, block id, length) of each run of neighbouring ids from `first` on."""
    start = first
    for end in range(first + 1, len(block_ids) + 1):
        if end == len(block_ids) or block_ids[end] != block_ids[end - 1] + 1:
            yield start, block_ids[start], end - start
            start = end


def store_chunks(layout: KvLayout, layers: Sequence[Pages], copies: Sequence[ChunkCopy]) -> None:
    """Copy pages into chunk objects."""
    _copy_chunks(layout, layers, copies, _store_run)


def retrieve_chunks(layout: KvLayout, layers: Sequence[Pages], copies: Sequence[ChunkCopy]) -> None:
    """Copy chunk objects into pages."""
    _copy_chunks(layout, layers, copies, _retrieve_run)


_CopyRun = Callable[[Pages, slice, Pages, slice], None]


def _store_run(chunk: Pages, at: slice, pages: Pages, blocks: slice) -> None:
    chunk[:, at] = pages[:, blocks]


def _retrieve_run(chunk: Pages, at: slice, pages: Pages, blocks: slice) -> None:
    pages[:, blocks] = chunk[:, at]


def _copy_chunks(
    layout: KvLayout, layers: Sequence[Pages], copies: Sequence[ChunkCopy], copy_run: _CopyRun
) -> None:
    for copy in copies:
        parts = zip(layout.groups, copy.block_ids, copy.skip_blocks, strict=True)
        for group, block_ids, skip in parts:
            part = _part_of(copy.data, group)
            for position, block, length in runs(block_ids, skip):
                at, blocks = slice(position, position + length), slice(block, block + length)
                for index, layer in enumerate(group.layers):
                    copy_run(part[:, index], at, layers[layer], blocks)


def _part_of(data: Bytes, group: GroupLayout) -> Pages:
    part = data[group.offset : group.offset + group.nbytes]
    return part.view(word_of(group.geometry.dtype)).reshape(group.object_shape)

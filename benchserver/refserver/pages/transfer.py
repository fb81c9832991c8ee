"""Copies between a client's paged tensors and chunk objects; one copy, straight, either way.

Runs in a thread: everything it needs is an argument, and all block ids have been checked.  A
layer is seen as [plane][block][slot][head][element] whatever its own order of axes is.

Where a block of a plane is one piece of memory, all blocks of an object and a layer are moved by
one call, row by row, each as fast as memcpy; elsewhere (HND) each run of neighbouring ids is one
strided copy.  A call for each block costs more than the copy itself where blocks are small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from benchserver.refserver.pages.layout import AXES, GroupLayout, KvLayout, LayerGeometry
from benchserver.refserver.store.arena import Bytes
from protocol.dtypes import ITEM_BYTES
from protocol.handles import CpuShmHandle

Pages = npt.NDArray[np.unsignedinteger[Any]]
Ids = npt.NDArray[np.intp]

_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32}
"""Elements are moved as unsigned integers: no copy may change a bit, NaN patterns included."""


def word_of(dtype: str) -> type[np.unsignedinteger[Any]]:
    """Return the integer type that is as wide as an element of `dtype`."""
    return _WORDS[ITEM_BYTES[dtype]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectCopy:
    """One object's part of a transfer.

    `group` is the index of its kernel group, `block_ids` are that group's of the whole chunk, and
    `skip_blocks` says how many leading ones stay untouched.
    """

    group: int
    data: Bytes
    block_ids: tuple[int, ...]
    skip_blocks: int = 0


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
    axes = AXES[geometry.form]
    view: Pages = tensor.transpose(axes.order)[axes.widening]
    return view


def runs(block_ids: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (position, block id, length) of each run of neighbouring ids."""
    start = 0
    for end in range(1, len(block_ids) + 1):
        if end == len(block_ids) or block_ids[end] != block_ids[end - 1] + 1:
            yield start, block_ids[start], end - start
            start = end


def store_objects(layout: KvLayout, layers: Sequence[Pages], copies: Sequence[ObjectCopy]) -> None:
    """Copy pages into chunk objects."""
    _copy_objects(layout, layers, copies, _STORE)


def retrieve_objects(
    layout: KvLayout, layers: Sequence[Pages], copies: Sequence[ObjectCopy]
) -> None:
    """Copy chunk objects into pages."""
    _copy_objects(layout, layers, copies, _RETRIEVE)


@dataclass(frozen=True, slots=True)
class _Direction:
    """How to copy between a plane's pages and `held`, what an object has of them.

    `rows(pages, ids, held)` is for whole rows of memory, `run(pages, held)` for views of any
    strides.
    """

    rows: Callable[[Pages, Ids, Pages], None]
    run: Callable[[Pages, Pages], None]


def _store_rows(pages: Pages, ids: Ids, held: Pages) -> None:
    # In any mode but "raise", `held` is written without a copy between; the ids are good.
    pages.take(ids, 0, held, "clip")


def _store_run(pages: Pages, held: Pages) -> None:
    held[...] = pages


def _retrieve_rows(pages: Pages, ids: Ids, held: Pages) -> None:
    pages[ids] = held


def _retrieve_run(pages: Pages, held: Pages) -> None:
    pages[...] = held


_STORE = _Direction(_store_rows, _store_run)
_RETRIEVE = _Direction(_retrieve_rows, _retrieve_run)


def _copy_objects(
    layout: KvLayout, layers: Sequence[Pages], copies: Sequence[ObjectCopy], direction: _Direction
) -> None:
    for number, group in enumerate(layout.groups):
        own = [copy for copy in copies if copy.group == number]
        ids = [np.array(copy.block_ids[copy.skip_blocks :], dtype=np.intp) for copy in own]
        held = [_held_by(copy, group) for copy in own]
        for index, layer in enumerate(group.layers):
            for plane, pages in enumerate(layers[layer]):
                _copy_plane(pages, ids, [part[plane, index] for part in held], direction)


def _held_by(copy: ObjectCopy, group: GroupLayout) -> Pages:
    """Return an object as [plane][layer][block][element of the block], without skipped blocks."""
    data = copy.data.view(word_of(group.geometry.dtype))
    planes, layers, blocks, *page = group.object_shape
    return data.reshape(planes, layers, blocks, math.prod(page))[:, :, copy.skip_blocks :]


def _copy_plane(
    pages: Pages, ids: Sequence[Ids], held: Sequence[Pages], direction: _Direction
) -> None:
    """Copy between the blocks `ids` of one plane, [block][slot][head][element], and `held`."""
    step = row_step(pages)
    if step:
        rows = as_rows(pages, step)
        for blocks, part in zip(ids, held, strict=True):
            direction.rows(rows, blocks if step == 1 else blocks * step, part)
        return
    for blocks, part in zip(ids, held, strict=True):
        whole = part.reshape(len(blocks), *pages.shape[1:])
        for position, block, length in runs(blocks.tolist()):
            direction.run(pages[block : block + length], whole[position : position + length])


def row_step(pages: Pages) -> int:
    """Return how many rows of a page's size lie between the starts of two blocks.

    0 says that there are no such rows: a page is not in one piece, or in another order, or the
    blocks do not lie whole pages apart.
    """
    step, gap = divmod(pages.strides[0], pages[0].nbytes)
    return step if pages[0].flags.c_contiguous and not gap else 0


def as_rows(pages: Pages, step: int) -> Pages:
    """Return the memory of blocks as rows of a page's size, [row][element]; no copy."""
    page = pages[0]
    if step == 1:
        return pages.reshape(len(pages), page.size)
    shape = ((len(pages) - 1) * step + 1, page.size)
    rows: Pages = as_strided(pages, shape, (page.nbytes, page.itemsize))
    return rows

"""The content of pages by Triton kernels: one launch a group, with keys computed on the device.

Imported only where a pool is made, since it imports Triton.  A program of a kernel writes or reads
one page: it computes the page's key as `benchserver.kv.pattern` does, from the chunk's digest and
the page's place, and goes through the page in tiles.
"""

from __future__ import annotations

import threading
from typing import Any

import triton
import triton.language as tl

from benchserver.kv.gpu.pages import BLOCKS_AT, COUNT_AT, RANK_AT, Call, device_table
from benchserver.kv.gpu.views import WORD_BYTES, GroupView
from benchserver.kv.pattern import GroupPattern
from benchserver.kv.pool import WHOLE, Share

_MAX_TILE_WORDS = 1024
_MIN_TILE_WORDS = 128
_WARPS = 4
"""128 threads with 64 bytes each: many programs fit a multiprocessor, whose reads overlap."""

_COUNT_AT = tl.constexpr(COUNT_AT)
_RANK_AT = tl.constexpr(RANK_AT)
_BLOCKS_AT = tl.constexpr(BLOCKS_AT)

_launching = threading.Lock()
"""Triton compiles at a kernel's first launch; threads must not do that at once."""


@triton.jit
def _mix(z):
    """`benchserver.kv.pattern._mix`, of one uint64."""
    z = z + 0x9E3779B97F4A7C15
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)


@triton.jit
def _page(
    numbers,
    blocks,
    columns,
    first_column,
    first_layer,
    layer_step,
    spec_layer: tl.constexpr,
    planes: tl.constexpr,
    blocks_per_chunk: tl.constexpr,
    words: tl.constexpr,
    plane_stride: tl.constexpr,
    layer_stride: tl.constexpr,
    key_mask: tl.constexpr,
):
    """Return the key of this program's page, as int64, and where in the group it begins.

    Pages are numbered by layer, plane and column, the last fastest.
    """
    page = tl.program_id(0)
    column = first_column + page % columns
    row = page // columns
    plane = row % planes
    layer = first_layer + layer_step * (row // planes)
    rank = tl.load(numbers + _RANK_AT).to(tl.uint64)
    block = tl.load(numbers + _BLOCKS_AT + column)
    digest = tl.load(numbers + _BLOCKS_AT + blocks + column // blocks_per_chunk).to(tl.uint64)
    place = (rank << 48) | ((spec_layer + layer).to(tl.uint64) << 32)
    place = place | (plane.to(tl.uint64) << 28) | (column % blocks_per_chunk).to(tl.uint64)
    key = _mix(digest ^ _mix(place)) & key_mask
    # In 64 bits: a pool may have more than 2^31 words.
    start = layer.to(tl.int64) * layer_stride + plane.to(tl.int64) * plane_stride + block * words
    return key.to(tl.int64), start


@triton.jit(do_not_specialize=["blocks", "columns", "first_column", "first_layer", "layer_step"])
def _fill(
    pages,
    table,
    numbers,
    blocks,
    columns,
    first_column,
    first_layer,
    layer_step,
    spec_layer: tl.constexpr,
    planes: tl.constexpr,
    blocks_per_chunk: tl.constexpr,
    words: tl.constexpr,
    plane_stride: tl.constexpr,
    layer_stride: tl.constexpr,
    key_mask: tl.constexpr,
    tile: tl.constexpr,
):
    key, start = _page(
        numbers,
        blocks,
        columns,
        first_column,
        first_layer,
        layer_step,
        spec_layer,
        planes,
        blocks_per_chunk,
        words,
        plane_stride,
        layer_stride,
        key_mask,
    )
    for first in range(0, words, tile):
        inside = first + tl.arange(0, tile)
        mask = inside < words
        content = tl.load(table + inside, mask=mask, other=0) ^ key
        tl.store(pages + start + inside, content, mask=mask)


@triton.jit(do_not_specialize=["blocks", "columns", "first_column", "first_layer", "layer_step"])
def _compare(
    pages,
    table,
    numbers,
    flags,
    blocks,
    columns,
    first_column,
    first_layer,
    layer_step,
    spec_layer: tl.constexpr,
    planes: tl.constexpr,
    blocks_per_chunk: tl.constexpr,
    words: tl.constexpr,
    plane_stride: tl.constexpr,
    layer_stride: tl.constexpr,
    key_mask: tl.constexpr,
    tile: tl.constexpr,
):
    key, start = _page(
        numbers,
        blocks,
        columns,
        first_column,
        first_layer,
        layer_step,
        spec_layer,
        planes,
        blocks_per_chunk,
        words,
        plane_stride,
        layer_stride,
        key_mask,
    )
    differs = tl.zeros([tile], dtype=tl.int64)
    for first in range(0, words, tile):
        inside = first + tl.arange(0, tile)
        mask = inside < words
        # Pages are read once, the table by every program: it shall stay in the cache.
        seen = tl.load(pages + start + inside, mask=mask, other=0, eviction_policy="evict_first")
        content = tl.load(table + inside, mask=mask, other=0) ^ key
        differs = differs | tl.where(mask, seen ^ content, 0)
    wrong = tl.max((differs != 0).to(tl.int32), axis=0)
    tl.store(flags + tl.program_id(0), wrong.to(tl.int8))
    tl.atomic_add(numbers + _COUNT_AT, wrong.to(tl.int64), mask=wrong != 0, sem="relaxed")


class TritonContent:
    """The content of one group, of pages of whole 8-byte words, by these kernels."""

    def __init__(self, view: GroupView, pattern: GroupPattern) -> None:
        """Raise ValueError if pages are not whole words."""
        if not view.whole_words:
            raise ValueError(f"pages of {view.page_bytes} bytes are not whole 8-byte words")
        self._view = view
        self._table = device_table(pattern, view.pages.device)
        words = view.page_bytes // WORD_BYTES
        layer_stride, plane_stride, _, _ = view.pages.stride()
        self._constants = {
            "spec_layer": view.layers.start,
            "planes": view.planes,
            "blocks_per_chunk": pattern.blocks_per_chunk,
            "words": words,
            "plane_stride": plane_stride,
            "layer_stride": layer_stride,
            "key_mask": pattern.key_mask,
            "tile": min(_MAX_TILE_WORDS, max(_MIN_TILE_WORDS, triton.next_power_of_2(words))),
            "num_warps": _WARPS,
        }

    def fill(self, call: Call, share: Share) -> None:
        """Write the window's blocks, in a share of the layers."""
        layers = self._view.share(share)
        columns = len(call.window.block_ids)
        programs = len(layers) * self._view.planes * columns
        if programs == 0:
            return
        with _launching:
            _fill[(programs,)](
                self._view.pages,
                self._table,
                call.numbers,
                columns,
                columns,
                0,
                layers.start,
                layers.step,
                **self._constants,
            )

    def compare(self, call: Call, skipped: int) -> Any:
        """Return what is not 0 where a page is wrong; see GroupContent."""
        import torch

        layers = self._view.share(WHOLE)
        blocks = len(call.window.block_ids)
        columns = blocks - skipped
        shape = (len(layers), self._view.planes, columns)
        flags = torch.empty(shape, dtype=torch.int8, device=call.numbers.device)
        with _launching:
            _compare[(flags.numel(),)](
                self._view.pages,
                self._table,
                call.numbers,
                flags,
                blocks,
                columns,
                skipped,
                layers.start,
                layers.step,
                **self._constants,
            )
        return flags

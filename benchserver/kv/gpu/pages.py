"""What is written to and read from pages on any torch device, in torch operations.

Everything here is enqueued on the current stream and returns tensors of the same device: nothing
waits for the device.  Operations that need as much room again as they look at go through the
layers in slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from benchserver.kv.blocks import Window, check_blocks
from benchserver.kv.gpu.queue import upload
from benchserver.kv.gpu.views import WORD_BYTES, GroupView
from benchserver.kv.pattern import GroupPattern
from benchserver.kv.pool import Places, Share

_SLICE_BYTES = 256 << 20
"""Temporaries of one operation: enough to keep a device busy, little beside its memory."""

COUNT_AT, RANK_AT, BLOCKS_AT = 0, 1, 2
"""Where a call's numbers lie: how many pages were wrong, the rank, then the block table, and
behind it the digests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One fill or comparison: what it is about, and the same on the device.

    `numbers` is an int64 tensor; see COUNT_AT and what follows.
    """

    window: Window
    digests: Sequence[int]
    numbers: Any


class GroupContent(Protocol):
    """Writes and compares the content of one group's pages."""

    def fill(self, call: Call, share: Share) -> None:
        """Write the window's blocks, in a share of the layers."""
        ...

    def compare(self, call: Call, skipped: int) -> Any:
        """Return a tensor [layer, plane, column - skipped] that is not 0 where a page is wrong.

        How many there are is added to the call's count.
        """
        ...


def start_call(
    window: Window, digests: Sequence[int], *, num_blocks: int, rank: int, device: Any
) -> Call:
    """Bring what a fill or comparison is about to the device, in one copy.

    Raises ValueError for blocks outside a pool of `num_blocks`.
    """
    blocks = len(window.block_ids)
    numbers = np.empty(BLOCKS_AT + blocks + len(digests), dtype=np.int64)
    numbers[COUNT_AT] = 0
    numbers[RANK_AT] = rank
    table = numbers[BLOCKS_AT : BLOCKS_AT + blocks]
    table[:] = window.block_ids
    check_blocks(window, int(table.min()), int(table.max()), num_blocks)
    numbers[BLOCKS_AT + blocks :] = np.asarray(digests, dtype=np.uint64).view(np.int64)
    return Call(window=window, digests=digests, numbers=upload(numbers, device))


def device_table(pattern: GroupPattern, device: Any) -> Any:
    """Return a group's table as a tensor of words, as its pages have them."""
    import torch

    signed = np.int64 if pattern.dtype is np.uint64 else np.uint8
    return torch.from_numpy(pattern.words.view(signed).copy()).to(device)


class TorchContent:
    """The content of one group in torch operations, with keys that the host has computed."""

    def __init__(self, view: GroupView, pattern: GroupPattern, *, rank: int) -> None:
        self._view = view
        self._pattern = pattern
        self._rank = rank
        self._table = device_table(pattern, view.pages.device)

    def fill(self, call: Call, share: Share) -> None:
        """Write the window's blocks, in a share of the layers."""
        import torch

        layers = self._view.share(share)
        keys = self._keys(call, layers)
        pages = _window_pages(self._view.pages, layers, call.window)
        for part in _layer_slices(pages):
            words = _key_words(keys[part], self._table)
            torch.bitwise_xor(self._table, words, out=pages[part])

    def compare(self, call: Call, skipped: int) -> Any:
        """Return what is not 0 where a page is wrong; see GroupContent."""
        import torch

        layers = self._view.share((0, 1))
        keys = self._keys(call, layers)
        pages = _window_pages(self._view.pages, layers, call.window)
        # Canaries and skipped blocks are compared too, and their answers then left out.
        found = [
            (pages[part] != (self._table ^ _key_words(keys[part], self._table))).any(dim=-1)
            for part in _layer_slices(pages)
        ]
        positions = np.asarray(call.window.block_ids[skipped:], dtype=np.int64) - call.window.first
        wrong = torch.cat(found).index_select(2, upload(positions, pages.device))
        call.numbers[COUNT_AT].add_(wrong.sum())
        return wrong

    def _keys(self, call: Call, layers: range) -> Any:
        """Return the keys of the window's pages, a tensor [layer, plane, position]."""
        window = call.window
        keys = np.zeros((len(layers), self._view.planes, window.count), dtype=np.uint64)
        positions = np.asarray(window.block_ids) - window.first
        for index, layer in enumerate(layers):
            keys[index][:, positions] = self._pattern.page_keys(
                call.digests, rank=self._rank, layer=self._view.layers[layer]
            )
        return upload(keys.view(np.int64), self._view.pages.device)


def _window_pages(pages: Any, layers: range, window: Window) -> Any:
    return pages[layers.start :: layers.step, :, window.first : window.first + window.count]


def _layer_slices(pages: Any) -> Iterator[slice]:
    """Yield slices of the first axis, so that the temporaries of each stay small."""
    layers = pages.shape[0]
    layer_bytes = pages[:1].numel() * pages.element_size()
    step = max(1, _SLICE_BYTES // max(1, layer_bytes))
    for start in range(0, layers, step):
        yield slice(start, start + step)


def _key_words(keys: Any, table: Any) -> Any:
    """Return keys [layer, plane, position] in a form that XORs with the table's words."""
    import torch

    words = keys.unsqueeze(-1)
    if table.dtype == torch.int64:
        return words
    as_bytes = words.contiguous().view(torch.uint8)
    places = torch.arange(table.numel(), device=table.device) % WORD_BYTES
    return as_bytes.index_select(3, places)


def poison(view: GroupView, window: Window, share: Share, poison_byte: int) -> None:
    """Write one byte value to every block of the window, in a share of the layers."""
    pages = _window_pages(view.pages, view.share(share), window)
    pages.fill_(view.word(poison_byte))


def flip(view: GroupView, window: Window, share: Share, byte: int) -> None:
    """XOR every byte of the window's blocks with one value, in a share of the layers."""
    pages = _window_pages(view.pages, view.share(share), window)
    pages.bitwise_xor_(view.word(byte))


def fill_blocks(view: GroupView, blocks: Any, share: Share, byte: int) -> None:
    """Write one byte value to blocks, given as an int64 tensor, in a share of the layers."""
    layers = view.share(share)
    view.pages[layers.start :: layers.step].index_fill_(2, blocks, view.word(byte))


def not_filled(view: GroupView, blocks: Any, byte: int) -> Any:
    """Return a bool tensor [layer, plane, block]: whether a page holds anything but `byte`.

    `blocks` is an int64 tensor of block ids.
    """
    import torch

    layer_bytes = view.planes * blocks.numel() * view.page_bytes
    step = max(1, _SLICE_BYTES // max(1, layer_bytes))
    found = [
        (view.pages[start : start + step].index_select(2, blocks) != view.word(byte)).any(dim=-1)
        for start in range(0, len(view.layers), step)
    ]
    return torch.cat(found)


NO_PLACES: Places = np.empty((0, 3), dtype=np.intp)


def fetch_places(views: Sequence[GroupView], flags: Sequence[Any]) -> Places:
    """Return which pages have a flag that is not 0; waits for the device.

    `flags` are a tensor [layer, plane, column] for each group.
    """
    found: list[Places] = []
    for view, part in zip(views, fetch_flags(flags), strict=True):
        places = np.argwhere(part)
        places[:, 0] += view.layers.start
        found.append(places)
    return np.concatenate(found)


def fetch_flags(flags: Sequence[Any]) -> list[npt.NDArray[np.bool_]]:
    """Bring tensors of flags to the host in one copy, which waits for the device."""
    import torch

    flat = torch.cat([part.reshape(-1).to(torch.bool) for part in flags]).cpu().numpy()
    ends = np.cumsum([part.numel() for part in flags])
    pieces = np.split(flat, ends[:-1])
    return [piece.reshape(tuple(part.shape)) for piece, part in zip(pieces, flags, strict=True)]

"""Which pages of a layer in host memory are wrong: numpy arrays, and memcmp(3) where it is faster.

A layer is an array (planes, blocks, bytes of a page).  What is wrong comes as an array with a row
for each page: its plane, and its column in the blocks looked at.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from benchserver.kv.blocks import Window
from benchserver.kv.pattern import U8, U64, GroupPattern

SLICE_BYTES = 1 << 20
"""Pages are checked in slices of this size, which stay in the cache of one core."""

_LARGE_PAGE_BYTES = 16 << 10
"""From this size on a call of memcmp for each page is faster than a copy of all."""

Columns = npt.NDArray[np.intp]

NO_COLUMNS: Columns = np.empty((0, 2), dtype=np.intp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Blocks of a table that lie side by side: their ids, and where the table has them."""

    blocks: slice
    columns: Columns


def table_runs(window: Window, skipped: int = 0) -> list[Run]:
    """Return the runs of a window's block table, without its first `skipped` blocks."""
    ids = np.asarray(window.block_ids[skipped:])
    order = np.argsort(ids)
    breaks = np.flatnonzero(np.diff(ids[order]) != 1) + 1
    return [
        Run(blocks=slice(ids[part[0]], ids[part[-1]] + 1), columns=part + skipped)
        for part in np.split(order, breaks)
    ]


def wrong_in_runs(layer: U8, pattern: GroupPattern, keys: U64, runs: Sequence[Run]) -> Columns:
    """Return the pages of runs that are not as their keys, by their column in the block table.

    `keys` has shape (planes, columns of the block table).
    """
    words = layer.view(pattern.dtype)
    wrong: list[Columns] = []
    for run in runs:
        found = bad_pages(words[:, run.blocks], pattern, keys[:, run.columns])
        if len(found):
            found[:, 1] = run.columns[found[:, 1]]
            wrong.append(found)
    return np.concatenate(wrong) if wrong else NO_COLUMNS


def bad_pages(pages: np.ndarray, pattern: GroupPattern, keys: U64) -> Columns:
    """Return every page that differs from its pattern.

    `pages` has shape (planes, columns, words of a page), in the pattern's dtype; `keys` has shape
    (planes, columns).
    """
    page_words = pages.shape[2]
    page_size = page_words * pages.itemsize
    step = max(1, SLICE_BYTES // max(1, page_size))
    scratch = np.empty((min(step, pages.shape[1]), page_words), dtype=pages.dtype)
    found: list[Columns] = []
    for plane in range(pages.shape[0]):
        for start in range(0, pages.shape[1], step):
            part = pages[plane, start : start + step]
            expected = scratch[: part.shape[0]]
            key_words = pattern.key_words(keys[plane, start : start + step])
            np.bitwise_xor(pattern.words, key_words, out=expected)
            if not same_bytes(part, expected):
                wrong = np.flatnonzero((part != expected).any(axis=1)) + start
                found.append(np.stack((np.full_like(wrong, plane), wrong), axis=1))
    return np.concatenate(found) if found else NO_COLUMNS


def not_filled(layer: U8, block_ids: Sequence[int], byte: int) -> Columns:
    """Return the pages of blocks that hold anything else than `byte`."""
    if layer.shape[2] < _LARGE_PAGE_BYTES:
        return np.argwhere((layer[:, block_ids] != byte).any(axis=2))
    filled = np.full(layer.shape[2], byte, dtype=np.uint8)
    found = [
        (plane, column)
        for plane in range(layer.shape[0])
        for column, block in enumerate(block_ids)
        if not same_bytes(layer[plane, block], filled)
    ]
    return np.asarray(found, dtype=np.intp).reshape(-1, 2)


def same_bytes(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> bool:
    """Tell whether two C-contiguous arrays hold the same bytes.

    By memcmp(3), which reads memory once: comparing arrays writes a third one, at half the speed.
    """
    if first.nbytes != second.nbytes:
        return False
    if not first.flags.c_contiguous or not second.flags.c_contiguous:
        raise ValueError("memcmp needs C-contiguous arrays")
    return _memcmp(first.ctypes.data, second.ctypes.data, first.nbytes) == 0


def _load_memcmp() -> Callable[[int, int, int], int]:
    memcmp = ctypes.CDLL(None).memcmp
    memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    memcmp.restype = ctypes.c_int
    return cast(Callable[[int, int, int], int], memcmp)


_memcmp = _load_memcmp()

"""The client's KV memory as the proxy sees it: mapped by name, addressed by block id.

Opened while REGISTER_KV_CACHE passes, since a client may unlink the name once it is answered.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from protocol.handles import CpuShmHandle

SHM_DIR = Path("/dev/shm")
_WORDS: dict[str, Any] = {
    "float16": np.uint16,
    "bfloat16": np.uint16,
    "float32": np.uint32,
    "uint8": np.uint8,
    "int8": np.uint8,
}

Tensor = npt.NDArray[Any]
Tables = Sequence[Sequence[int]]
"""Block ids, one row a KV layer group."""


def map_segment(name: str, nbytes: int) -> npt.NDArray[np.uint8]:
    """Map a segment read-write; the mapping lives as long as the array."""
    fd = os.open(SHM_DIR / name.lstrip("/"), os.O_RDWR | os.O_CLOEXEC)
    try:
        return np.frombuffer(mmap.mmap(fd, nbytes), dtype=np.uint8)
    finally:
        os.close(fd)


def flip_bit(page: Tensor) -> None:
    """Flip the lowest bit of one element in the middle of a page."""
    middle = tuple(size // 2 for size in page.shape)
    page[middle] ^= 1


class ClientMemory:
    """All KV tensors of one registered instance, each with its block axis first."""

    def __init__(self, handles: Sequence[CpuShmHandle], groups: Sequence[Sequence[int]]) -> None:
        """`groups` are the layer indices of each KV layer group."""
        sizes: dict[str, int] = {}
        for handle in handles:
            sizes[handle.shm_name] = max(handle.nbytes, sizes.get(handle.shm_name, 0))
        memory = {name: map_segment(name, nbytes) for name, nbytes in sizes.items()}
        self._tensors = [_blocks_first(memory[handle.shm_name], handle) for handle in handles]
        self._groups = [list(layers) for layers in groups] or [list(range(len(handles)))]

    @property
    def num_blocks(self) -> int:
        """Return the number of blocks of every tensor."""
        return int(self._tensors[0].shape[0])

    def page(self, layer: int, block_id: int) -> Tensor:
        """Return one block of one layer, K and V, as a writable view."""
        view: Tensor = self._tensors[layer][block_id]
        return view

    def read(self, tables: Tables) -> list[Tensor]:
        """Return a copy of the tables' blocks, one array a layer."""
        return [self._tensors[layer][ids] for layer, ids in self._rows(tables)]

    def write(self, tables: Tables, data: Sequence[Tensor]) -> None:
        """Overwrite the tables' blocks with what `read` returned for as many blocks."""
        for (layer, ids), pages in zip(self._rows(tables), data, strict=True):
            self._tensors[layer][ids] = pages

    def _rows(self, tables: Tables) -> list[tuple[int, list[int]]]:
        return [
            (layer, list(ids))
            for layers, ids in zip(self._groups, tables, strict=True)
            for layer in layers
        ]


def _blocks_first(memory: npt.NDArray[np.uint8], handle: CpuShmHandle) -> Tensor:
    word = np.dtype(_WORDS[handle.dtype])
    start = handle.storage_offset * word.itemsize
    flat = memory[start : start + handle.span_bytes() - start].view(word)
    strides = [step * word.itemsize for step in handle.stride]
    view = np.lib.stride_tricks.as_strided(flat, handle.shape, strides)
    # Classical tensors are (2, NB, ...); MLA and blocks-first ones start with NB.
    return np.moveaxis(view, 1, 0) if len(handle.shape) == 5 and handle.shape[0] == 2 else view

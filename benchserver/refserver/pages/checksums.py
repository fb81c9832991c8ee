"""MD5 digests of the blocks that a client's tensors hold, as POST /cache/checksums defines them.

Blocks are gathered along each tensor's block axis in the order asked for and cut into runs of
`blocks_per_chunk`; a digest covers a run's C-order bytes, layer by layer, in the tensor's own
order of axes.  bfloat16 is widened to float32 first, as the real server does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from benchserver.refserver.pages.layout import AXES, Format
from benchserver.refserver.pages.transfer import Pages

_MIN_RANGE = 3
"""Shorter runs of ids are listed one by one in `block_id_ranges`."""


class BlockSource(Protocol):
    """One registered tensor, wherever it lies."""

    @property
    def num_blocks(self) -> int:
        """Return how many blocks the tensor has."""
        ...

    def bytes_of(self, block_ids: Sequence[int]) -> memoryview:
        """Return blocks in C order, bfloat16 widened to float32."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedLayer:
    """One tensor in host memory, in its own order of axes."""

    tensor: Pages
    form: Format
    dtype: str

    @property
    def num_blocks(self) -> int:
        """Return how many blocks the tensor has."""
        return int(self.tensor.shape[AXES[self.form].block])

    def bytes_of(self, block_ids: Sequence[int]) -> memoryview:
        """Return blocks in C order, bfloat16 widened to float32."""
        taken = self.tensor.take(np.asarray(block_ids), axis=AXES[self.form].block)
        if self.dtype == "bfloat16":
            taken = taken.astype(np.uint32) << np.uint32(16)
        return np.ascontiguousarray(taken).data


def aggregate_digests(
    layers: Sequence[BlockSource], block_ids: Sequence[int], blocks_per_chunk: int
) -> list[str]:
    """Return one digest a chunk, over all layers."""
    digests = []
    for ids in _chunks(block_ids, blocks_per_chunk):
        digest = hashlib.md5(usedforsecurity=False)
        for layer in layers:
            digest.update(layer.bytes_of(ids))
        digests.append(digest.hexdigest())
    return digests


def layerwise_digests(
    layers: Sequence[BlockSource], block_ids: Sequence[int], blocks_per_chunk: int
) -> dict[str, list[str]]:
    """Return one digest a chunk for each layer."""
    return {
        f"layer_{index}": aggregate_digests([layer], block_ids, blocks_per_chunk)
        for index, layer in enumerate(layers)
    }


def blocks_in_range(num_blocks: int, block_ids: Sequence[int]) -> bool:
    """Tell whether there is every block."""
    return all(0 <= block < num_blocks for block in block_ids)


def id_ranges(block_ids: Sequence[int]) -> list[int | list[int]]:
    """Shorten a list of ids: runs of three and more as [first, last], in the given order."""
    ranges: list[int | list[int]] = []
    start = 0
    for end in range(1, len(block_ids) + 1):
        if end < len(block_ids) and block_ids[end] == block_ids[end - 1] + 1:
            continue
        run = list(block_ids[start:end])
        ranges.extend([[run[0], run[-1]]] if len(run) >= _MIN_RANGE else run)
        start = end
    return ranges


def _chunks(block_ids: Sequence[int], size: int) -> list[Sequence[int]]:
    return [block_ids[first : first + size] for first in range(0, len(block_ids), size)]

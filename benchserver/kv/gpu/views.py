"""A flat tensor on any torch device, seen as the pages and guards of a shape spec.

The bytes lie as `benchserver.kv.layout.place_tensors` says.  All layers of a KV layer group are one
strided view, so that one operation reaches every page of the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchserver.kv.blocks import NULL_BLOCKS
from benchserver.kv.layout import TensorPlace, place_tensors
from benchserver.kv.pattern import CANARY_BYTE
from benchserver.kv.pool import Share
from shapespec import GroupSpec, ShapeSpec, layer_indices, page_bytes, planes

WORD_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """One KV layer group.

    `pages` is a tensor [layer, plane, block, word]; words are int64 where a page is whole 8-byte
    words, and else uint8.  `guards` is a uint8 tensor [layer, byte]: the guard behind each layer's
    tensor.  `layers` are the group's, numbered over the whole spec.
    """

    index: int
    spec: GroupSpec
    layers: range
    pages: Any
    guards: Any

    @property
    def planes(self) -> int:
        """Return how many planes a layer has."""
        return planes(self.spec)

    @property
    def page_bytes(self) -> int:
        """Return the size of a page."""
        return page_bytes(self.spec)

    @property
    def whole_words(self) -> bool:
        """Tell whether `pages` has words of 8 bytes."""
        return self.page_bytes % WORD_BYTES == 0

    def word(self, byte: int) -> int:
        """Return the word whose every byte is `byte`, as an element of `pages`."""
        count = WORD_BYTES if self.whole_words else 1
        return int.from_bytes(bytes([byte]) * count, "little", signed=self.whole_words)

    def share(self, share: Share) -> range:
        """Return which layers of the group, counted from its first, a share of the spec has."""
        first, step = share
        return range((first - self.layers.start) % step, len(self.layers), step)

    def page(self, layer: int, plane: int, block: int) -> npt.NDArray[np.uint8]:
        """Fetch one page's bytes; `layer` counts from the group's first."""
        words: npt.NDArray[Any] = self.pages[layer, plane, block].cpu().numpy()
        return words.view(np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """All groups of a spec, and the guard before the first tensor, a uint8 tensor [byte]."""

    groups: tuple[GroupView, ...]
    first_guard: Any

    def write_canaries(self) -> None:
        """Write the guards and the null blocks."""
        self.first_guard.fill_(CANARY_BYTE)
        for group in self.groups:
            group.guards.fill_(CANARY_BYTE)
            group.pages[:, :, :NULL_BLOCKS].fill_(group.word(CANARY_BYTE))


def view_pool(flat: Any, spec: ShapeSpec) -> PoolView:
    """See a flat uint8 tensor as the pool of a spec; ValueError if it has another size."""
    places, nbytes = place_tensors(spec)
    if flat.dim() != 1 or flat.element_size() != 1 or flat.numel() != nbytes:
        raise ValueError(
            f"a tensor of shape {tuple(flat.shape)} and {flat.element_size()} bytes an element, "
            f"expected {nbytes} bytes in one dimension"
        )
    ends = [*(place.offset for place in places[1:]), nbytes]
    groups = [
        _view_group(flat, index, group, layers, places, ends)
        for index, (group, layers) in enumerate(zip(spec.groups, layer_indices(spec), strict=True))
    ]
    return PoolView(groups=tuple(groups), first_guard=flat[: places[0].offset])


def _view_group(
    flat: Any,
    index: int,
    group: GroupSpec,
    layers: range,
    places: Sequence[TensorPlace],
    ends: Sequence[int],
) -> GroupView:
    import torch

    first = places[layers.start]
    stride = ends[layers.start] - first.offset  # the same from each layer of a group to the next
    for layer in layers:
        if places[layer].offset != first.offset + (layer - layers.start) * stride:
            raise ValueError(f"layer {layer} of group {index} does not lie where its group does")
    size = page_bytes(group)
    word = WORD_BYTES if size % WORD_BYTES == 0 else 1
    words = flat.view(torch.int64) if word == WORD_BYTES else flat
    pages = torch.as_strided(
        words,
        (len(layers), planes(group), group.num_blocks, size // word),
        (stride // word, group.num_blocks * size // word, size // word, 1),
        words.storage_offset() + first.offset // word,
    )
    guards = torch.as_strided(
        flat,
        (len(layers), stride - first.nbytes),
        (stride, 1),
        flat.storage_offset() + first.offset + first.nbytes,
    )
    return GroupView(index=index, spec=group, layers=layers, pages=pages, guards=guards)

"""Where each layer's tensor of a shape spec lies in a pool's memory, on the host or on a GPU.

Tensors lie one after the other, each on a page boundary, and a guard follows each; one more guard
lies before the first.  Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shapespec import ShapeSpec, layer_indices, tensor_bytes

_ALIGN_BYTES = 4096
GUARD_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPlace:
    """Where one layer's tensor lies in the memory, in bytes."""

    layer: int
    group: int
    offset: int
    nbytes: int


def place_tensors(spec: ShapeSpec) -> tuple[tuple[TensorPlace, ...], int]:
    """Return every tensor's place, and the size of the memory that holds them all."""
    places: list[TensorPlace] = []
    offset = GUARD_BYTES
    for index, (group, layers) in enumerate(zip(spec.groups, layer_indices(spec), strict=True)):
        nbytes = tensor_bytes(group)
        for layer in layers:
            places.append(TensorPlace(layer=layer, group=index, offset=offset, nbytes=nbytes))
            offset += -(-nbytes // _ALIGN_BYTES) * _ALIGN_BYTES + GUARD_BYTES
    return tuple(places), offset


def guard_spans(places: Sequence[TensorPlace], nbytes: int) -> list[tuple[int, int]]:
    """Return where each guard begins and ends: before all tensors, then behind each."""
    starts = [0, *(place.offset + place.nbytes for place in places)]
    ends = [*(place.offset for place in places), nbytes]
    return list(zip(starts, ends, strict=True))

"""Views of a storage, as torch describes tensors, and their bytes in row-major order.

The bytes of a contiguous view are a slice of its storage; those of a strided one are copied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from protocol.dtypes import ITEM_BYTES
from protocol.inline.torchnames import VIEW_FORMATS


@dataclass(frozen=True, slots=True)
class Storage:
    """A block of elements; `dtype` may be `UNTYPED`, but not in a view."""

    dtype: str
    numel: int
    data: memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A tensor as torch describes it; its span lies within the storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * ITEM_BYTES[self.storage.dtype]


_Axis = tuple[int, int]  # size, stride in elements


def _merged_axes(view: View) -> list[_Axis]:
    """Return the axes, neighbours that step as one merged; [] or [(n, 1)] means contiguous."""
    axes: list[_Axis] = []
    for size, step in zip(view.shape, view.stride, strict=True):
        if size == 1:
            continue
        if axes and axes[-1][1] == size * step:
            axes[-1] = (axes[-1][0] * size, step)
        else:
            axes.append((size, step))
    return axes


def is_contiguous(view: View) -> bool:
    """Tell whether the elements of a view lie one behind the other."""
    axes = _merged_axes(view)
    return view.numel == 0 or not axes or (len(axes) == 1 and axes[0][1] == 1)


def _run_starts(axes: Sequence[_Axis], start: int) -> Iterator[int]:
    """Yield the element offsets of the innermost runs, in row-major order of the outer axes."""
    if not axes:
        yield start
        return
    size, step = axes[0]
    for index in range(size):
        yield from _run_starts(axes[1:], start + index * step)


def gathered(view: View) -> memoryview:
    """Return the row-major bytes of a strided view, copied run by run of its innermost axis."""
    view_format = VIEW_FORMATS[ITEM_BYTES[view.storage.dtype]]
    source = view.storage.data.cast(view_format)
    result = bytearray(view.nbytes)
    target = memoryview(result).cast(view_format)
    *outer, (count, step) = _merged_axes(view)
    position = 0
    for start in _run_starts(outer, view.offset):
        if step:
            run = source[start : start + (count - 1) * step + 1 : step]
        else:
            run = memoryview(bytes(source[start : start + 1]) * count).cast(view_format)
        target[position : position + count] = run
        position += count
    return memoryview(result).toreadonly()


def sliced(view: View) -> memoryview:
    """Return the bytes of a contiguous view, where they lie."""
    start = view.offset * ITEM_BYTES[view.storage.dtype]
    return view.storage.data[start : start + view.nbytes]

"""One tensor of the list, as plain bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from protocol.dtypes import ITEM_BYTES
from protocol.errors import LocalProtocolError

MAX_RANK = 16
"""KV objects have rank 3 or 4.  The rest is room for a peer's odd views, and few enough that
nested iteration over the axes stays shallow."""

MAX_COUNT = 2**63 - 1
"""torch counts elements and bytes in int64."""


@dataclass(frozen=True, slots=True)
class InlineTensor:
    """A CPU tensor as its C-contiguous raw bytes; `dtype` is torch's name without prefix."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview

    def __post_init__(self) -> None:
        if self.dtype not in ITEM_BYTES:
            raise LocalProtocolError(
                f"InlineTensor: dtype {self.dtype!r} is not one of {', '.join(ITEM_BYTES)}"
            )
        if not isinstance(self.shape, tuple) or not is_shape(self.shape):
            raise LocalProtocolError(
                f"InlineTensor: shape {self.shape!r} must be a tuple of at most {MAX_RANK} "
                f"non-negative integers that span less than 2**63 elements"
            )
        expected = math.prod(self.shape) * ITEM_BYTES[self.dtype]
        if byte_view(self.data, "InlineTensor data").nbytes != expected:
            raise LocalProtocolError(
                f"InlineTensor: {len(self.data)} bytes of data, but {self.dtype} of shape "
                f"{self.shape} has {expected}"
            )


def is_shape(values: tuple[object, ...]) -> bool:
    """Tell whether a contiguous tensor of these sizes exists, at up to 8 bytes an element."""
    sizes = [value for value in values if type(value) is int and value >= 0]
    if len(sizes) != len(values) or len(sizes) > MAX_RANK:
        return False
    return math.prod(max(size, 1) for size in sizes) <= MAX_COUNT // 8


def byte_view(data: bytes | memoryview, place: str) -> memoryview:
    """Return a view of plain bytes; LocalProtocolError, naming the place, for any other one."""
    view = memoryview(data)
    if view.ndim != 1 or view.itemsize != 1 or not view.c_contiguous:
        raise LocalProtocolError(
            f"{place}: a memoryview of format {view.format!r} and shape {view.shape} is not "
            f"plain bytes; make it contiguous and cast('B') it"
        )
    return view.cast("B")

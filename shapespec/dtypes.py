"""The element types that a shape spec may name.

Owns the closed set of dtypes: the spelling and the item size.
It must not know numpy, torch or the server's own dtype codes; what holds memory maps a
`DType` to its own type by `name`.

Works as a read-only table, for all releases alike: which dtypes a server takes is for the server
to say.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class DType:
    """One element type: canonical lower-case name and bytes of one element."""

    name: str
    item_bytes: int


_SUPPORTED = (
    DType(name="float16", item_bytes=2),
    DType(name="bfloat16", item_bytes=2),
    DType(name="float32", item_bytes=4),
    DType(name="uint8", item_bytes=1),
    DType(name="int8", item_bytes=1),
    DType(name="float8_e4m3fn", item_bytes=1),
    DType(name="float8_e5m2", item_bytes=1),
)

DTYPES: Mapping[str, DType] = MappingProxyType({dtype.name: dtype for dtype in _SUPPORTED})
"""Canonical name -> dtype, in the order in which error messages list them."""

"""The element types that a shape spec may name.

Owns the closed set of dtypes: the spelling, the item size and whether the bits are a float.
Must not know numpy, torch or the server's own dtype codes; code that holds memory maps a
:class:`DType` to its own type by ``name``.

Works as a read-only table, for all releases alike: which dtypes a server takes is for the server
to say.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class DType:
    """One element type: canonical lower-case name, bytes of one element, and its kind."""

    name: str
    item_bytes: int
    kind: Literal["float", "int"]


_SUPPORTED = (
    DType(name="float16", item_bytes=2, kind="float"),
    DType(name="bfloat16", item_bytes=2, kind="float"),
    DType(name="float32", item_bytes=4, kind="float"),
    DType(name="uint8", item_bytes=1, kind="int"),
    DType(name="int8", item_bytes=1, kind="int"),
    DType(name="float8_e4m3fn", item_bytes=1, kind="float"),
    DType(name="float8_e5m2", item_bytes=1, kind="float"),
)

DTYPES: Mapping[str, DType] = MappingProxyType({dtype.name: dtype for dtype in _SUPPORTED})
"""Canonical name -> dtype, in the order in which error messages list them."""

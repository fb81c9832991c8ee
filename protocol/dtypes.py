"""The element types of KV tensors on the wire: torch's names, and how many bytes an element has.

The one table of this package; whatever else must be known of a dtype stands where it is used, by
name.  Which of them a shape spec may name is `shapespec`'s decision.
"""

from collections.abc import Mapping
from types import MappingProxyType

ITEM_BYTES: Mapping[str, int] = MappingProxyType(
    {
        "float16": 2,
        "bfloat16": 2,
        "float32": 4,
        "uint8": 1,
        "int8": 1,
        "float8_e4m3fn": 1,
        "float8_e5m2": 1,
    }
)
"""torch's name of a dtype, without prefix -> bytes of one element."""

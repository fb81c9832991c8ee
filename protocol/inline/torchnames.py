"""The names and numbers in torch's streams, among them its storage classes by dtype.

torch has a storage class for each of its old dtypes.  Its newer ones lie in an untyped storage,
which counts bytes, and a call that names the dtype itself.
"""

from collections.abc import Mapping
from typing import Literal

from protocol.dtypes import ITEM_BYTES
from protocol.pickles import Global

MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001
"""A blob, torch's legacy file, begins with these."""

REBUILD_TENSOR = Global("torch._utils", "_rebuild_tensor_v2")
REBUILD_NEWER = Global("torch._utils", "_rebuild_tensor_v3")
LOAD_STORAGE = Global("torch.storage", "_load_from_bytes")
ORDERED_DICT = Global("collections", "OrderedDict")

UNTYPED = "untyped"
"""Stands for a dtype where a storage has none."""

_CLASSES: Mapping[str, Global] = {
    "float16": Global("torch", "HalfStorage"),
    "bfloat16": Global("torch", "BFloat16Storage"),
    "float32": Global("torch", "FloatStorage"),
    "uint8": Global("torch", "ByteStorage"),
    "int8": Global("torch", "CharStorage"),
    UNTYPED: Global("torch.storage", "UntypedStorage"),
}

NEWER_DTYPES = frozenset(Global("torch", name) for name in ITEM_BYTES if name not in _CLASSES)

DTYPE_OF_CLASS: Mapping[Global, str] = {storage: name for name, storage in _CLASSES.items()}

VIEW_FORMATS: Mapping[int, Literal["B", "H", "I"]] = {1: "B", 2: "H", 4: "I"}
"""Bytes of an element -> how memoryview spells its width."""


def is_newer(dtype: str) -> bool:
    """Tell whether torch has no storage class for a dtype."""
    return dtype not in _CLASSES


def class_of(dtype: str) -> Global:
    """Return the storage class in which a dtype lies."""
    return _CLASSES.get(dtype, _CLASSES[UNTYPED])


def class_item_bytes(dtype: str) -> int:
    """Return what a storage of a dtype, or of none, counts in."""
    return ITEM_BYTES.get(dtype, 1)

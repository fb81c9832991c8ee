"""torch's storage classes, by dtype."""

from __future__ import annotations

import pytest

from protocol.dtypes import ITEM_BYTES
from protocol.inline.torchnames import (
    DTYPE_OF_CLASS,
    NEWER_DTYPES,
    UNTYPED,
    VIEW_FORMATS,
    class_item_bytes,
    class_of,
    is_newer,
)
from protocol.pickles import Global

CLASSES = {
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "float32": "FloatStorage",
    "uint8": "ByteStorage",
    "int8": "CharStorage",
}


@pytest.mark.parametrize("dtype", ITEM_BYTES)
def test_each_dtype_lies_in_its_class_or_in_an_untyped_storage(dtype: str) -> None:
    if dtype in CLASSES:
        assert class_of(dtype) == Global("torch", CLASSES[dtype])
        assert DTYPE_OF_CLASS[class_of(dtype)] == dtype
    else:
        assert class_of(dtype) == Global("torch.storage", "UntypedStorage")
        assert DTYPE_OF_CLASS[class_of(dtype)] == UNTYPED
    assert is_newer(dtype) == (dtype not in CLASSES)
    assert (Global("torch", dtype) in NEWER_DTYPES) == is_newer(dtype)


def test_an_untyped_storage_counts_bytes() -> None:
    assert class_item_bytes(UNTYPED) == 1
    assert class_item_bytes("float16") == 2
    assert set(VIEW_FORMATS) == set(ITEM_BYTES.values())

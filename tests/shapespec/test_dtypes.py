"""The supported dtypes, by literal table."""

from dataclasses import FrozenInstanceError

import pytest

from shapespec.dtypes import DTYPES, DType

EXPECTED = [
    ("float16", 2),
    ("bfloat16", 2),
    ("float32", 4),
    ("uint8", 1),
    ("int8", 1),
    ("float8_e4m3fn", 1),
    ("float8_e5m2", 1),
]


def test_the_supported_set_is_exactly_this() -> None:
    table = [(key, d.name, d.item_bytes) for key, d in DTYPES.items()]
    assert table == [(name, name, item_bytes) for name, item_bytes in EXPECTED]


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        DTYPES["half"] = DTYPES["float16"]  # type: ignore[index]


def test_a_dtype_is_frozen_and_compares_by_value() -> None:
    dtype = DType(name="float16", item_bytes=2)
    assert dtype == DTYPES["float16"]
    assert hash(dtype) == hash(DTYPES["float16"])
    with pytest.raises(FrozenInstanceError):
        dtype.item_bytes = 4  # type: ignore[misc]

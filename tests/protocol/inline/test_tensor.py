"""A tensor that cannot be is our mistake."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.errors import LocalProtocolError
from protocol.inline.tensor import InlineTensor


@pytest.mark.parametrize(
    ("dtype", "shape", "data", "match"),
    [
        ("float64", (1,), b"12345678", "float64"),
        ("torch.int8", (1,), b"1", "dtype"),
        ("int8", [1], b"1", "shape"),
        ("int8", (True,), b"1", "shape"),
        ("int8", (-1, -1), b"1", "shape"),
        ("int8", (1,) * 17, b"1", "at most 16"),
        ("int8", (0, 1 << 31, 1 << 31), b"", "2\\*\\*63"),
        ("float16", (3,), b"12345", "has 6"),
        ("float16", (3,), b"1234567", "has 6"),
        ("float32", (1,), memoryview(b"1234").cast("f"), "cast"),
        ("int8", (2,), memoryview(b"1234")[::2], "contiguous"),
        ("int8", (4,), memoryview(b"1234").cast("B", (2, 2)), "cast"),
    ],
)
def test_a_wrong_tensor_is_our_mistake(dtype: str, shape: Any, data: Any, match: str) -> None:
    with pytest.raises(LocalProtocolError, match=match):
        InlineTensor(dtype, shape, data)

"""What a transfer took, and what is said of dtypes that engines do not send."""

from __future__ import annotations

import pytest

from benchserver.client.transfer import Moved, dtype_hint
from shapespec import parse_shape_spec


def test_a_transfer_takes_until_its_data_has_landed() -> None:
    assert Moved(began_ns=10, replied_ns=15, landed_ns=40, chunks=1).latency_ns == 30


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "uint8"])
def test_dtypes_that_engines_send_need_no_hint(dtype: str) -> None:
    assert dtype_hint(parse_shape_spec(f"(2,8,2,1,4):{dtype}:2")) == ""


def test_fp8_is_sent_as_bytes() -> None:
    spec = "(2,8,2,1,4):float8_e4m3fn:2;(2,8,2,1,4):float8_e5m2:1;(2,8,2,1,4):float16:1"
    assert dtype_hint(parse_shape_spec(spec)) == (
        "; engines give fp8 KV as uint8, not as float8_e4m3fn or float8_e5m2: put uint8 in the "
        "shape spec"
    )

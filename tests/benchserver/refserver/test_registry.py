"""What an engine-driven client registers: the shape of its objects, or why not."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.registry import parse_engine_instance

GOOD: dict[str, Any] = {
    "instance_id": 7,
    "model_name": "m",
    "world_size": 1,
    "block_size": 16,
    "num_layers": 2,
    "hidden_dim_size": 6,
    "dtype_str": "float16",
    "use_mla": False,
}


@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        ({}, (2, 2, 32, 6)),
        ({"use_mla": True}, (2, 32, 6)),
        ({"num_physical_slots": 8}, (2, 2, 8, 6)),
        ({"num_physical_slots": None, "unknown": 1}, (2, 2, 32, 6)),
    ],
)
def test_engine_object_shapes(fields: dict[str, Any], shape: tuple[int, ...]) -> None:
    instance_id, instance = parse_engine_instance({**GOOD, **fields}, chunk_size=32, now_ns=0)
    assert (instance_id, instance.shape) == (7, shape)


@pytest.mark.parametrize(
    "fields",
    [
        {"instance_id": "7"},
        {"model_name": None},
        {"world_size": 0},
        {"num_layers": True},
        {"num_layers": 2**40, "hidden_dim_size": 2**40},
        {"hidden_dim_size": -1},
        {"dtype_str": "complex128"},
        {"dtype_str": ["float16"]},
        {"use_mla": 1},
        {"num_physical_slots": 0},
    ],
)
def test_bad_engine_registrations(fields: dict[str, Any]) -> None:
    with pytest.raises(RefusalError):
        parse_engine_instance({**GOOD, **fields}, chunk_size=32, now_ns=0)

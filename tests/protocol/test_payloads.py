"""What the frames of each generation are, against what differed between real releases."""

from __future__ import annotations

import pytest

from protocol.fields import POOL_INFO
from protocol.ops import Op
from protocol.payloads import (
    KEY_FIELDS_041,
    KEY_FIELDS_044,
    KEY_FIELDS_055,
    KEY_FIELDS_057,
    SHAPES_041,
    SHAPES_043,
    SHAPES_044,
    SHAPES_046,
    SHAPES_047,
    SHAPES_050,
    SHAPES_055,
    SHAPES_056,
    SHAPES_057,
    Shape,
)

OLDEST_FIRST = (
    SHAPES_041,
    SHAPES_043,
    SHAPES_044,
    SHAPES_046,
    SHAPES_047,
    SHAPES_050,
    SHAPES_055,
    SHAPES_056,
    SHAPES_057,
)


def names(shape: Shape) -> tuple[str, ...]:
    return tuple(field.name for field in shape.payload)


def test_every_generation_describes_every_operation() -> None:
    for shapes in OLDEST_FIRST:
        assert set(shapes) == set(Op)


def test_keys_grew_and_then_packed_their_tokens() -> None:
    assert KEY_FIELDS_041[-1] == "request_id"
    assert (*KEY_FIELDS_041, "cache_salt") == KEY_FIELDS_044
    assert (*KEY_FIELDS_044, "request_configs", "num_kv_readers") == KEY_FIELDS_055
    assert KEY_FIELDS_057[3] == "token_bytes"
    assert [name for name in KEY_FIELDS_055 if name != "token_ids"] == [
        name for name in KEY_FIELDS_057 if name != "token_bytes"
    ]


REGISTER = ("instance_id", "kv_cache", "model_name", "world_size")


@pytest.mark.parametrize(
    ("shapes", "payload"),
    [
        (SHAPES_041, REGISTER),
        (SHAPES_043, (*REGISTER, "layout_hints")),
        (SHAPES_044, (*REGISTER, "layout_hints")),
        (SHAPES_046, (*REGISTER, "engine_type", "layout_hints")),
        (SHAPES_047, (*REGISTER, "engine_type", "layout_hints", "engine_group_infos")),
        (SHAPES_056, (*REGISTER, "engine_type", "layout_hints", "engine_group_infos")),
    ],
)
def test_what_a_registration_says(shapes: dict[Op, Shape], payload: tuple[str, ...]) -> None:
    assert names(shapes[Op.REGISTER_KV_CACHE]) == payload


def test_what_else_differs() -> None:
    assert [names(shapes[Op.CLEAR]) for shapes in (SHAPES_055, SHAPES_056)] == [(), ("force",)]
    assert [names(shapes[Op.PING]) for shapes in (SHAPES_047, SHAPES_050)] == [
        (),
        ("instance_id",),
    ]
    assert names(SHAPES_043[Op.QUERY_PREFETCH_STATUS]) == ("job_id",)
    assert names(SHAPES_044[Op.QUERY_PREFETCH_STATUS]) == ("request_id",)
    assert SHAPES_046[Op.REGISTER_ENGINE_DRIVEN].result is None
    assert SHAPES_047[Op.REGISTER_ENGINE_DRIVEN].result is POOL_INFO
    assert names(SHAPES_057[Op.PREPARE_STORE])[-1] == "skipped_chunks"
    assert names(SHAPES_057[Op.FREE_LOOKUP_LOCKS])[-1] == "extra_ranges"

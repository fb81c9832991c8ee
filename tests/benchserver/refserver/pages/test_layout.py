"""How registered tensors relate to objects: read from what was registered, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.refserver.pages.layout import Format, layout_of
from benchserver.refserver.refusal import RefusalError
from protocol.handles import CpuShmHandle
from tests.benchserver.refserver.pages.described import CHUNK, MLA, NHD, handle, info, layout


@pytest.mark.parametrize(
    ("handles", "infos", "hints", "reason"),
    [
        ([], [], {}, "no KV tensors"),
        ([handle((1, 6, 4, 3, 5))], [], {}, "expected"),
        ([handle((3, 6, 4, 3, 5))], [], {}, "expected"),
        ([handle((6, 4))], [], {}, "expected"),
        ([handle((2, 6, 4, 3, 1, 5))], [], {}, "expected"),
        ([handle((2, 0, 4, 3, 5))], [], {}, "empty"),
        ([NHD], [], {"kv_layout": "XYZ"}, "kv_layout"),
        ([NHD], [], {"kv_layout": ["HND"]}, "kv_layout"),
        ([handle((6, 3, 7))], [], {}, "does not divide"),
        ([MLA], [info(0, [0], 6)], {}, "not a multiple"),
        ([MLA], [info(0, [0], 12)], {}, "does not divide"),
        ([MLA], [info(0, [1], 4)], {}, "names a layer"),
        ([MLA], [info(-1, [0], 4)], {}, "wrong type"),
        ([MLA], [{"layer_indices": [0]}], {}, "wrong type"),
        ([MLA], [{"engine_group_id": 0, "layer_indices": ["0"]}], {}, "wrong type"),
        ([MLA], [info(0, [], 4)], {}, "list no layer"),
        ([MLA, NHD], [info(0, [0, 1], 4)], {}, "the tensors form"),
        ([MLA, MLA], [info(0, [0], 4), info(0, [1], 4)], {}, "the tensors form"),
        ([MLA, NHD], [info(0, [1], 4), info(0, [0], 4)], {}, "the tensors form"),
    ],
)
def test_bad_registrations_are_refused(
    handles: list[CpuShmHandle], infos: list[dict[str, Any]], hints: dict[str, str], reason: str
) -> None:
    with pytest.raises(RefusalError, match=reason):
        layout(handles, infos, hints)


def test_k_and_v_side_by_side_are_heads_of_twice_the_size() -> None:
    """What vLLM 0.32 registers on CPU: blocks, heads, slots, K and V of a head."""
    plan = layout([handle((16, 2, 4, 10))], hints={"kv_layout": "HND"})
    assert plan.formats == (Format.FUSED_HND,)
    assert plan.groups[0].geometry == (Format.FUSED_HND, 1, 4, 2, 10, "float16")
    assert plan.groups[0].num_blocks == 16
    assert plan.groups[0].object_shape == (1, 1, CHUNK // 4, 4, 2, 10)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(RefusalError, match="engine type"):
        layout_of([MLA], {}, [], engine_type="other", chunk_size=CHUNK)


def test_alike_groups_of_other_engine_groups_stay_apart_and_unlisted_layers_are_left_out() -> None:
    plan = layout([MLA, MLA, MLA], [info(0, [0], 4), info(1, [2], 4)])
    assert [group.layers for group in plan.groups] == [(0,), (2,)]


def test_without_infos_groups_come_from_the_shapes() -> None:
    plan = layout([MLA, NHD, MLA])
    assert [group.layers for group in plan.groups] == [(0, 2), (1,)]


def test_blocks_may_cover_more_tokens_than_slots() -> None:
    plan = layout([MLA], [info(0, [0], 8)])
    assert (plan.groups[0].blocks_per_chunk, plan.groups[0].tokens_per_block) == (1, 8)
    assert plan.group_bytes == (4 * 7 * 2,)

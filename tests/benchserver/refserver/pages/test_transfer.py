"""Layouts and copies: pages to chunk objects and back, byte for byte, in every format."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchserver.refserver.pages.layout import KvLayout
from benchserver.refserver.pages.transfer import (
    ObjectCopy,
    Pages,
    as_rows,
    paged_view,
    retrieve_objects,
    row_step,
    runs,
    store_objects,
    tensor_over,
)
from protocol.handles import CpuShmHandle, contiguous_strides
from tests.benchserver.refserver.pages.described import CHUNK, handle, info, layout


def tensors(handles: list[CpuShmHandle], seed: int) -> list[Pages]:
    rng = np.random.default_rng(seed)
    return [tensor_over(bytearray(rng.bytes(h.nbytes)), h) for h in handles]


def pages_of(plan: KvLayout, layers: list[Pages]) -> list[Pages]:
    views = list(layers)
    for group in plan.groups:
        for layer in group.layers:
            views[layer] = paged_view(layers[layer], group.geometry)
    return views


def copy_of(data: Any, ids: tuple[int, ...], group: int = 0, skip: int = 0) -> ObjectCopy:
    return ObjectCopy(group=group, data=data, block_ids=ids, skip_blocks=skip)


def room_for(plan: KvLayout, group: int = 0) -> Any:
    return np.zeros(plan.group_bytes[group], dtype=np.uint8)


FORMATS: dict[str, tuple[tuple[int, ...], str, dict[str, str]]] = {
    "classical": ((2, 6, 4, 3, 5), "float16", {}),
    "classical HND": ((2, 6, 3, 4, 5), "bfloat16", {"kv_layout": "HND"}),
    "blocks first": ((6, 2, 4, 3, 5), "float32", {}),
    "blocks first HND": ((6, 2, 3, 4, 5), "uint8", {"kv_layout": "HND"}),
    "fused": ((6, 4, 3, 10), "float16", {}),
    "fused HND": ((6, 3, 4, 10), "bfloat16", {"kv_layout": "HND"}),
    "fused BLNHC": ((6, 4, 3, 10), "float8_e4m3fn", {"kv_layout": "BLNHC"}),
    "fused BLHNC": ((6, 3, 4, 10), "float8_e5m2", {"kv_layout": "BLHNC"}),
    "MLA": ((6, 4, 7), "float16", {}),
}

ONE_PLANE = [name for name in FORMATS if name == "MLA" or name.startswith("fused")]
BLOCKS_FIRST = [*ONE_PLANE, *(name for name in FORMATS if name.startswith("blocks"))]


def token_row(name: str, tensor: Pages, plane: int, block: int, slot: int) -> bytes:
    """The hidden vector of one token, read the long way round."""
    picks: dict[str, Any] = {
        "classical": lambda: tensor[plane, block, slot],
        "classical HND": lambda: tensor[plane, block, :, slot],
        "blocks first": lambda: tensor[block, plane, slot],
        "blocks first HND": lambda: tensor[block, plane, :, slot],
        "fused": lambda: tensor[block, slot],
        "fused HND": lambda: tensor[block, :, slot],
        "fused BLNHC": lambda: tensor[block, slot],
        "fused BLHNC": lambda: tensor[block, :, slot],
        "MLA": lambda: tensor[block, slot],
    }
    return bytes(np.ascontiguousarray(picks[name]()).tobytes())


@pytest.mark.parametrize("name", FORMATS)
def test_an_object_is_plane_layer_token_hidden(name: str) -> None:
    shape, dtype, hints = FORMATS[name]
    handles = [handle(shape, dtype), handle(shape, dtype)]
    plan = layout(handles, hints=hints)
    layers = tensors(handles, 1)
    data = room_for(plan)
    ids = (4, 1)
    store_objects(plan, pages_of(plan, layers), [copy_of(data, ids)])
    planes = 1 if name in ONE_PLANE else 2
    want = b"".join(
        token_row(name, layer, plane, ids[token // 4], token % 4)
        for plane in range(planes)
        for layer in layers
        for token in range(CHUNK)
    )
    assert data.tobytes() == want


@pytest.mark.parametrize("name", FORMATS)
def test_retrieve_writes_the_same_bytes_to_other_blocks_and_nowhere_else(name: str) -> None:
    shape, dtype, hints = FORMATS[name]
    handles = [handle(shape, dtype)]
    plan = layout(handles, hints=hints)
    source, target = tensors(handles, 1), tensors(handles, 2)
    before = target[0].copy()
    data = room_for(plan)
    store_objects(plan, pages_of(plan, source), [copy_of(data, (4, 1))])
    retrieve_objects(plan, pages_of(plan, target), [copy_of(data, (2, 3))])
    axis = 0 if name in BLOCKS_FIRST else 1
    assert np.array_equal(target[0].take([2, 3], axis), source[0].take([4, 1], axis))
    assert np.array_equal(target[0].take([0, 1, 4, 5], axis), before.take([0, 1, 4, 5], axis))


def test_each_group_has_an_object_of_its_own() -> None:
    handles = [handle((6, 4, 7)), handle((2, 6, 4, 1, 3), "float32")]
    plan = layout(handles, [info(0, [0], 4), info(0, [1], 4)])
    assert plan.group_bytes == (2 * 4 * 7 * 2, 2 * 2 * 4 * 3 * 4)
    layers = tensors(handles, 1)
    latent, classical = room_for(plan, 0), room_for(plan, 1)
    copies = [copy_of(classical, (1, 2), group=1), copy_of(latent, (5, 0), group=0)]
    store_objects(plan, pages_of(plan, layers), copies)
    assert latent.tobytes() == layers[0][[5, 0]].tobytes()
    assert classical.tobytes() == layers[1][:, [1, 2]].tobytes()


def test_one_groups_object_touches_no_other_groups_pages() -> None:
    handles = [handle((6, 4, 7)), handle((6, 4, 7))]
    plan = layout(handles, [info(0, [0], 4), info(1, [1], 4)])
    source, target = tensors(handles, 1), tensors(handles, 2)
    before = target[0].copy()
    data = room_for(plan, 1)
    store_objects(plan, pages_of(plan, source), [copy_of(data, (5, 0), group=1)])
    retrieve_objects(plan, pages_of(plan, target), [copy_of(data, (2, 3), group=1)])
    assert np.array_equal(target[1][[2, 3]], source[1][[5, 0]])
    assert np.array_equal(target[0], before)


def test_skipped_blocks_stay_untouched() -> None:
    handles = [handle((6, 4, 7))]
    plan = layout(handles)
    source, target = tensors(handles, 1), tensors(handles, 2)
    before = target[0].copy()
    data = room_for(plan)
    store_objects(plan, pages_of(plan, source), [copy_of(data, (0, 1))])
    retrieve_objects(plan, pages_of(plan, target), [copy_of(data, (0, 1), skip=1)])
    assert np.array_equal(target[0][0], before[0])
    assert np.array_equal(target[0][1], source[0][1])


def test_tensors_at_an_offset_and_with_gaps_between_layers() -> None:
    buffer = bytearray(np.random.default_rng(3).bytes(2 * 2 * 6 * 4 * 7))
    # One segment of [block][layer][slot][hidden]: both layers step over each other.
    handles = [
        CpuShmHandle(
            shm_name="s",
            nbytes=len(buffer),
            dtype="float16",
            shape=(6, 4, 7),
            stride=(2 * 4 * 7, 7, 1),
            storage_offset=layer * 4 * 7,
        )
        for layer in range(2)
    ]
    plan = layout(handles)
    layers = [tensor_over(buffer, h) for h in handles]
    data = room_for(plan)
    store_objects(plan, pages_of(plan, layers), [copy_of(data, (3, 2))])
    whole = np.frombuffer(buffer, dtype=np.uint16).reshape(6, 2, 4, 7)
    assert data.tobytes() == whole[[3, 2]].transpose(1, 0, 2, 3).tobytes()


def test_an_axis_of_one_may_have_any_stride() -> None:
    odd = CpuShmHandle(
        shm_name="s",
        nbytes=14,
        dtype="float16",
        shape=(1, 1, 7),
        stride=(2**62, 2**63 - 1, 1),
    )
    assert tensor_over(bytearray(14), odd).shape == (1, 1, 7)


@pytest.mark.parametrize(
    ("ids", "want"),
    [
        ([], []),
        ([5], [(0, 5, 1)]),
        ([5, 6, 7, 2, 3, 3], [(0, 5, 3), (3, 2, 2), (5, 3, 1)]),
        ([3, 2, 1], [(0, 3, 1), (1, 2, 1), (2, 1, 1)]),
    ],
)
def test_runs(ids: list[int], want: list[tuple[int, int, int]]) -> None:
    assert list(runs(ids)) == want


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("classical", 1),
        ("classical HND", 0),
        ("blocks first", 2),
        ("blocks first HND", 0),
        ("fused", 1),
        ("fused HND", 0),
        ("MLA", 1),
    ],
)
def test_blocks_that_are_one_piece_of_memory_are_rows(name: str, want: int) -> None:
    shape, dtype, hints = FORMATS[name]
    handles = [handle(shape, dtype)]
    [view] = pages_of(layout(handles, hints=hints), tensors(handles, 1))
    for pages in view:
        assert row_step(pages) == want
        if want:
            rows = as_rows(pages, want)
            assert np.shares_memory(rows, pages)
            assert rows.flags.c_contiguous
            assert np.array_equal(rows[::want], pages.reshape(len(pages), -1))


def test_pages_with_gaps_are_no_rows() -> None:
    buffer = np.arange(6 * 5 * 8, dtype=np.uint16)
    assert row_step(buffer.reshape(6, 5, 1, 8)[:, :4, :, :]) == 0, "blocks lie 1.25 pages apart"
    assert row_step(buffer.reshape(6, 5, 1, 8)[:, :, :, :4]) == 0, "gaps within a page"
    assert row_step(buffer.reshape(6, 5, 1, 8)[::2]) == 2
    assert row_step(buffer[:8].reshape(1, 1, 1, 8)) == 1


@pytest.mark.parametrize("name", FORMATS)
def test_all_blocks_may_be_skipped(name: str) -> None:
    shape, dtype, hints = FORMATS[name]
    handles = [handle(shape, dtype)]
    plan = layout(handles, hints=hints)
    target = tensors(handles, 2)
    before = target[0].copy()
    data = np.zeros(plan.group_bytes[0], dtype=np.uint8)
    copy = ObjectCopy(group=0, data=data, block_ids=(0, 1), skip_blocks=2)
    retrieve_objects(plan, pages_of(plan, target), [copy])
    assert np.array_equal(target[0], before)


def test_layers_of_a_block_may_lie_together() -> None:
    """Blocks first, then layers: each layer's blocks are as far apart as all layers are long."""
    shape, layers = (6, 3, 4, 10), 3
    block = 3 * 4 * 10
    memory = bytearray(np.random.default_rng(1).bytes(6 * layers * block * 2))
    described = [
        CpuShmHandle(
            shm_name="s",
            nbytes=len(memory),
            dtype="float16",
            shape=shape,
            stride=(layers * block, *contiguous_strides(shape)[1:]),
            storage_offset=layer * block,
        )
        for layer in range(layers)
    ]
    plan = layout(described, hints={"kv_layout": "BLHNC"})
    views = pages_of(plan, [tensor_over(memory, one) for one in described])
    data = room_for(plan)
    store_objects(plan, views, [copy_of(data, (4, 1))])
    whole = np.frombuffer(memory, dtype=np.uint16).reshape(6, layers, 3, 4, 10)
    want = np.stack([whole[(4, 1), layer].swapaxes(1, 2) for layer in range(layers)])
    assert data.tobytes() == want.tobytes()
    memory[:] = bytes(len(memory))
    retrieve_objects(plan, views, [copy_of(data, (2, 3))])
    again = room_for(plan)
    store_objects(plan, views, [copy_of(again, (2, 3))])
    assert again.tobytes() == data.tobytes()
    whole = np.frombuffer(memory, dtype=np.uint16).reshape(6, layers, 3, 4, 10)
    assert not whole[[0, 1, 4, 5]].any()

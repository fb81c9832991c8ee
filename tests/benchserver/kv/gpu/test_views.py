"""Strided views of a flat tensor, against places counted by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchserver.kv.gpu.views import GroupView, PoolView, view_pool
from benchserver.kv.layout import place_tensors
from shapespec import parse_shape_spec

SPEC = parse_shape_spec("(2,24,2,1,4):float16:3;(1,24,2,1,66):uint8:2")


def group_view(layers: range) -> GroupView:
    return GroupView(index=0, spec=SPEC.groups[0], layers=layers, pages=None, guards=None)


def test_words_of_one_byte_value() -> None:
    assert group_view(range(3)).word(0xE5) == -0x1A1A1A1A1A1A1A1B  # 0xE5E5... as int64
    assert group_view(range(3)).word(0x05) == 0x0505050505050505
    odd = GroupView(index=1, spec=SPEC.groups[1], layers=range(3, 5), pages=None, guards=None)
    assert (odd.whole_words, odd.page_bytes, odd.planes) == (False, 132, 1)
    assert odd.word(0xE5) == 0xE5


@pytest.mark.parametrize("start", range(5))
@pytest.mark.parametrize("step", range(1, 6))
def test_shares_count_the_layers_of_the_spec(start: int, step: int) -> None:
    view = group_view(range(start, start + 4))
    for first in range(step):
        expected = [n for n in range(start, start + 4) if n in range(first, 1000, step)]
        assert [start + layer for layer in view.share((first, step))] == expected


@pytest.mark.torch
def test_views_lie_where_the_places_are() -> None:
    pool, flat = viewed()
    memory = flat.numpy()
    places, _ = place_tensors(SPEC)
    for view in pool.groups:
        for index, layer in enumerate(view.layers):
            place = places[layer]
            tensor = memory[place.offset : place.offset + place.nbytes]
            assert view.pages[index].numpy().tobytes() == tensor.tobytes()
            pages = tensor.reshape(view.planes, 24, view.page_bytes)
            assert view.page(index, view.planes - 1, 23).tolist() == pages[-1, 23].tolist()
            end = places[layer + 1].offset if layer + 1 < len(places) else memory.size
            guard = memory[place.offset + place.nbytes : end]
            assert view.guards[index].numpy().tobytes() == guard.tobytes()
    assert pool.first_guard.numpy().tobytes() == memory[:4096].tobytes()
    assert [tuple(view.pages.shape) for view in pool.groups] == [(3, 2, 24, 2), (2, 1, 24, 132)]


@pytest.mark.torch
def test_views_and_guards_are_all_the_memory() -> None:
    pool, flat = viewed()
    pool.first_guard.fill_(1)
    for view in pool.groups:
        view.guards.fill_(1)
        view.pages.fill_(view.word(1))
    memory = flat.numpy()
    places, _ = place_tensors(SPEC)
    assert (memory == 1).all()
    seen = places[0].offset
    for view in pool.groups:
        seen += view.guards.numel() + view.pages.numel() * view.pages.element_size()
    assert seen == memory.size, "views overlap"


@pytest.mark.torch
def test_canaries_at_the_start() -> None:
    pool, flat = viewed()
    flat.zero_()
    pool.write_canaries()
    memory = flat.numpy()
    written = np.flatnonzero(memory == 0xDA).size
    places, _ = place_tensors(SPEC)
    guards = memory.size - sum(place.nbytes for place in places)
    assert written == np.flatnonzero(memory).size == guards + 3 * 2 * 16 + 2 * 132


@pytest.mark.torch
def test_memory_of_another_size_is_refused() -> None:
    import torch

    _, nbytes = place_tensors(SPEC)
    for shape, dtype in (
        ((nbytes - 1,), torch.uint8),
        ((nbytes + 8,), torch.uint8),
        ((nbytes // 2, 2), torch.uint8),
        ((nbytes,), torch.int16),
    ):
        with pytest.raises(ValueError, match=f"expected {nbytes} bytes"):
            view_pool(torch.zeros(shape, dtype=dtype), SPEC)


def viewed() -> tuple[PoolView, Any]:
    import torch

    _, nbytes = place_tensors(SPEC)
    flat = torch.from_numpy(np.random.default_rng(0).integers(0, 256, nbytes, np.uint8))
    return view_pool(flat, SPEC), flat

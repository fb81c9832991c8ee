"""The kernels, run by Triton's interpreter; the suite over pools runs them too."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import numpy as np
import pytest

from benchserver.kv.blocks import Window
from benchserver.kv.content import group_patterns
from benchserver.kv.gpu.pages import COUNT_AT, start_call
from benchserver.kv.gpu.views import GroupView, view_pool
from benchserver.kv.layout import place_tensors
from benchserver.kv.pool import WHOLE
from shapespec import parse_shape_spec

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") != "1" or importlib.util.find_spec("triton") is None,
        reason="needs Triton, with its interpreter switched on: TRITON_INTERPRET=1",
    ),
]

TEXT = "(2,24,2,1,4):float16:2;(1,24,2,1,8):float32:2"
WINDOW = Window(first=5, count=4, block_ids=(8, 5, 7, 6), canaries=())
DIGESTS = (2**64 - 1, 12345)
RANK = 4095


def content_of(group: int) -> tuple[Any, GroupView, Any]:
    import torch

    from benchserver.kv.gpu.kernels import TritonContent

    spec = parse_shape_spec(TEXT)
    flat = torch.zeros(place_tensors(spec)[1], dtype=torch.uint8)
    view = view_pool(flat, spec).groups[group]
    pattern = group_patterns(bytes(16), spec, 2)[group]
    return TritonContent(view, pattern), view, flat


def call() -> Any:
    import torch

    return start_call(WINDOW, DIGESTS, num_blocks=24, rank=RANK, device=torch.device("cpu"))


@pytest.mark.parametrize("group", [0, 1])
def test_keys_are_those_of_the_pattern(group: int) -> None:
    content, view, _ = content_of(group)
    content.fill(call(), WHOLE)
    pattern = group_patterns(bytes(16), parse_shape_spec(TEXT), 2)[group]
    for index, layer in enumerate(view.layers):
        keys = pattern.page_keys(DIGESTS, rank=RANK, layer=layer)
        for plane in range(view.planes):
            for column, block in enumerate(WINDOW.block_ids):
                expected = pattern.expected_page(int(keys[plane, column]))
                assert view.page(index, plane, block).tobytes() == expected.tobytes()


def test_flags_and_count_of_wrong_pages() -> None:
    content, view, flat = content_of(0)
    content.fill(call(), WHOLE)
    before = flat.clone()
    view.pages[1, 0, 7, 1] ^= 1  # column 2
    view.pages[0, 1, 8, 0] ^= 1 << 62  # column 0, which is skipped below
    compared = call()
    flags = content.compare(compared, 0)
    assert np.argwhere(flags.numpy()).tolist() == [[0, 1, 0], [1, 0, 2]]
    assert compared.numbers[COUNT_AT].item() == 2
    compared = call()
    flags = content.compare(compared, 1)
    assert tuple(flags.shape) == (2, 2, 3)
    assert np.argwhere(flags.numpy()).tolist() == [[1, 0, 1]]
    assert compared.numbers[COUNT_AT].item() == 1
    assert int((flat != before).sum()) == 2, "a comparison wrote"


def test_nothing_beside_the_pages_is_written() -> None:
    content, view, flat = content_of(0)
    content.fill(call(), (1, 2))
    view.pages[1][:, list(WINDOW.block_ids)] = 0
    assert not flat.any()


def test_a_share_without_layers_of_the_group_does_nothing() -> None:
    content, _, flat = content_of(0)
    content.fill(call(), (3, 4))
    assert not flat.any()


def test_pages_of_no_whole_words_are_refused() -> None:
    import torch

    from benchserver.kv.gpu.kernels import TritonContent

    spec = parse_shape_spec("(1,24,1,1,132):uint8:1")
    flat = torch.zeros(place_tensors(spec)[1], dtype=torch.uint8)
    view = view_pool(flat, spec).groups[0]
    with pytest.raises(ValueError, match="pages of 132 bytes"):
        TritonContent(view, group_patterns(bytes(16), spec, 2)[0])

"""Torch operations on pages: the suite over pools sees what they do; here, how they go about it."""

from __future__ import annotations

import numpy as np
import pytest

from benchserver.kv.blocks import Window
from benchserver.kv.content import group_patterns
from benchserver.kv.gpu import pages
from benchserver.kv.gpu.pages import (
    BLOCKS_AT,
    COUNT_AT,
    RANK_AT,
    device_table,
    fetch_flags,
    fetch_places,
    start_call,
)
from benchserver.kv.gpu.views import view_pool
from benchserver.kv.layout import place_tensors
from benchserver.kv.verify import verify
from shapespec import parse_shape_spec
from tests.pools import DIGESTS, PAST, SPECS, looks, open_host, open_on_cpu, plan, restored

pytestmark = pytest.mark.torch

WINDOW = Window(first=3, count=3, block_ids=(5, 3, 4), canaries=())


def test_a_call_in_numbers() -> None:
    import torch

    call = start_call(
        WINDOW, (1, 2**64 - 2, 2**63), num_blocks=6, rank=7, device=torch.device("cpu")
    )
    assert call.numbers.tolist() == [0, 7, 5, 3, 4, 1, -2, -(2**63)]
    assert call.numbers.dtype == torch.int64
    assert (COUNT_AT, RANK_AT, BLOCKS_AT) == (0, 1, 2)


@pytest.mark.parametrize("num_blocks", [0, 3, 5])
def test_a_call_beyond_the_pool_is_refused(num_blocks: int) -> None:
    import torch

    text = f"blocks 3 to 5 in a window .* of a pool of {num_blocks} blocks"
    with pytest.raises(ValueError, match=text):
        start_call(WINDOW, (1,), num_blocks=num_blocks, rank=0, device=torch.device("cpu"))


@pytest.mark.parametrize("text", ["(2,8,2,1,4):float16:1", "(2,8,1,1,5):uint8:1"])
def test_the_table_is_the_patterns(text: str) -> None:
    import torch

    (pattern,) = group_patterns(bytes(16), parse_shape_spec(text), 1)
    table = device_table(pattern, torch.device("cpu"))
    assert table.numpy().tobytes() == pattern.words.tobytes()
    table.zero_()
    assert pattern.words.any(), "the table shares the pattern's memory"


@pytest.mark.parametrize("limit", [1, 1000, 40_000])
@pytest.mark.parametrize("text", SPECS)
def test_layers_in_slices(monkeypatch: pytest.MonkeyPatch, text: str, limit: int) -> None:
    """However few layers an operation takes at once, it does and sees the same."""
    monkeypatch.setattr(pages, "_SLICE_BYTES", limit)
    source, destination = plan(1)
    with open_on_cpu(text) as tested, open_host(text) as host:
        tested.write(host.read())
        for pool in (tested, host):
            pool.pool.fill(source, DIGESTS)
            pool.pool.poison(destination)
        assert tested.read().tobytes() == host.read().tobytes()
        memory = restored(host, text, destination)
        for offset in np.random.default_rng(1).integers(0, memory.size, 5):
            memory[offset] ^= 1
        for pool in (tested, host):
            pool.write(memory)
        assert looks(tested.pool, destination, 3) == looks(host.pool, destination, 3)
        assert verify(tested.pool, source, DIGESTS, PAST) == verify(
            host.pool, source, DIGESTS, PAST
        )


def test_flags_come_in_one_piece_and_keep_their_shapes() -> None:
    import torch

    first = torch.tensor([[0, 2], [0, 0]], dtype=torch.int8)
    second = torch.tensor([True, False, True])
    seen = fetch_flags([first, second])
    assert seen[0].tolist() == [[False, True], [False, False]]
    assert seen[1].tolist() == [True, False, True]


def test_places_are_numbered_over_the_whole_spec() -> None:
    import torch

    spec = parse_shape_spec("(2,8,2,1,4):float16:2;(1,8,2,1,8):uint8:3")
    view = view_pool(torch.zeros(place_tensors(spec)[1], dtype=torch.uint8), spec)
    flags = [torch.zeros((2, 2, 4), dtype=torch.int8), torch.zeros((3, 1, 4), dtype=torch.int8)]
    assert fetch_places(view.groups, flags).shape == (0, 3)
    flags[0][1, 0, 3] = 1
    flags[1][0, 0, 2] = flags[1][2, 0, 0] = 1
    found = fetch_places(view.groups, flags)
    assert found.tolist() == [[1, 0, 3], [2, 0, 2], [4, 0, 0]]

"""Torch operations on pages: the suite over pools sees what they do; here, how they go about it."""

from __future__ import annotations

import numpy as np
import pytest

from benchserver.kv.blocks import Window
from benchserver.kv.gpu import pages
from benchserver.kv.gpu.pages import BLOCKS_AT, COUNT_AT, RANK_AT, device_table, start_call
from benchserver.kv.pattern import group_patterns
from shapespec import parse_shape_spec
from tests.poolsuite import DIGESTS, PAST, SPECS, looks, open_host, open_on_cpu, plan, restored

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

    (pattern,) = group_patterns(bytes(16), parse_shape_spec(text))
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
        assert tested.pool.verify(source, DIGESTS, PAST) == host.pool.verify(source, DIGESTS, PAST)

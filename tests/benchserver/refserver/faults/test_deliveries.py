"""What RETRIEVE restores while a fault is on: on the server's own handlers, without sockets."""

from __future__ import annotations

import numpy as np
import pytest

from tests.faultstage import FROM, TO, Stage


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("switch", "wrong"),
    [
        ("noop_retrieve", [0, 1]),
        ("noop_retrieve:rank=1", [1]),
        ("half_retrieve:rank=0", [0]),
        ("flip_byte", [0, 1]),
        ("flip_byte@1", [0]),
        ("flip_byte:layer=0,rank=1", [1]),
        ("swap_chunks", [0, 1]),
        ("layer_mixup@2", [1]),
        ("plane_mixup", [0, 1]),
        ("rank_mixup", [1]),
        ("canary_overwrite", []),
        ("ignored_skip", []),
        ("source_overwrite", [0, 1]),
        ("delay", []),
    ],
)
async def test_which_rank_gets_wrong_bytes(stage: Stage, switch: str, wrong: list[int]) -> None:
    stage.switch(switch)
    await stage.round_trip()
    assert [r for r in range(2) if not stage.restored(r).all()] == wrong
    assert stage.locks() == 0
    assert stage.fired()[0] > 0


@pytest.mark.asyncio
async def test_one_element_of_the_named_layer_and_chunk_is_flipped(stage: Stage) -> None:
    stage.switch("flip_byte:layer=1,chunk=0,rank=0")
    await stage.round_trip()
    wrong = np.argwhere(~stage.restored(0))
    assert len(wrong) == 1
    assert tuple(wrong[0][[0, 2]]) == (1, 1)  # the layer; the second block of chunk 0


@pytest.mark.asyncio
async def test_swaps_put_each_where_the_other_belongs(stage: Stage) -> None:
    first, second = stage.pages[0]
    stage.switch("swap_chunks")
    await stage.round_trip("a")
    assert np.array_equal(first[:, TO], first[:, [3, 4, 1, 2]])
    stage.switch("layer_mixup")
    await stage.round_trip("b")
    assert np.array_equal(first[:, TO], second[:, FROM])
    stage.switch("plane_mixup")
    await stage.round_trip("c")
    assert np.array_equal(first[0, TO], first[1, FROM])
    stage.switch("rank_mixup")
    await stage.round_trip("d")
    assert np.array_equal(stage.pages[1][0][:, TO], first[:, FROM])

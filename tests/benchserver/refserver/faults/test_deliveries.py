"""What RETRIEVE restores while a fault is on: on the server's own handlers, without sockets."""

from __future__ import annotations

import numpy as np
import pytest

from protocol.ops import Op
from tests.faultstage import BS, DONE, FROM, TO, Stage


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
async def test_half_is_left_as_it_was(stage: Stage) -> None:
    stage.switch("half_retrieve:rank=0")
    before = [page[:, TO].copy() for page in stage.pages[0]]
    await stage.round_trip()
    for page, old in zip(stage.pages[0], before, strict=True):
        assert np.array_equal(page[:, TO[:2]], page[:, FROM[:2]])
        assert np.array_equal(page[:, TO[2:]], old[:, 2:])


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


@pytest.mark.asyncio
async def test_stale_data_is_what_was_stored_before(stage: Stage) -> None:
    stage.switch("stale_data")
    old = stage.pages[0][0][:, FROM].copy()
    await stage.round_trip("a")
    assert stage.fired() == [0]
    stage.pages[0][0][:, FROM] += 1
    await stage.round_trip("b")
    assert stage.fired() == [2]
    assert np.array_equal(stage.pages[0][0][:, TO], old)
    assert stage.locks() == 0
    for name in ("a", "b"):
        await stage.call(Op.END_SESSION, name)
    assert stage.core.sessions.count == 0


@pytest.mark.asyncio
async def test_blocks_beside_and_blocks_read_are_overwritten(stage: Stage) -> None:
    page = stage.pages[0][0]
    before = page.copy()
    stage.switch("canary_overwrite:rank=0", "source_overwrite:rank=0")
    await stage.round_trip()
    changed = {int(block) for block in np.argwhere(page != before)[:, 1]} - set(TO)
    assert changed == {max(TO) + 1, FROM[0]}


@pytest.mark.asyncio
async def test_ignored_skip_writes_what_must_be_left(stage: Stage) -> None:
    for skip_is_ignored in (False, True):
        stage.switch(*(["ignored_skip"] if skip_is_ignored else []))
        stage.pages[0][0][:, TO] = 0
        await stage.store("a")
        await stage.store("a", 1)
        assert await stage.lookup("a") == 2
        assert await stage.retrieve("a", skip=BS) == DONE
        assert bool(stage.pages[0][0][:, TO[0]].any()) is skip_is_ignored

"""Block ids: cut by group and chunk, null, skipped, out of range."""

from __future__ import annotations

import pytest

from benchserver.refserver.pages import block_ids as ids_of
from benchserver.refserver.refusal import RefusalError
from tests.benchserver.refserver.pages.described import MLA, NHD, info, layout


def test_block_ids_are_cut_by_group_and_chunk() -> None:
    plan = layout([MLA, NHD], [info(0, [0], 4), info(1, [1], 8)])
    ids = [[1, 2, 3, 4, 9, 9], [5, 0, 7]]
    assert ids_of.cover_all(plan, ids, 2)
    assert ids_of.cut(plan, ids, 2) == (((1, 2), (5,)), ((3, 4), (0,)))
    assert not ids_of.cover_all(plan, ids, 4)
    with pytest.raises(RefusalError, match="lists for 2 groups"):
        ids_of.cover_all(plan, ids[:1], 2)
    with pytest.raises(RefusalError, match="3 block ids, 2 a chunk"):
        ids_of.cover_all(plan, [[1, 2, 3], [4]], 1)


@pytest.mark.parametrize(("block", "want"), [(-1, False), (0, True), (5, True), (6, False)])
def test_only_blocks_of_the_tensor_exist(block: int, want: bool) -> None:
    assert ids_of.exist(layout([MLA]), [((1, block),)]) is want


def test_a_chunk_is_null_if_all_its_blocks_are() -> None:
    assert ids_of.is_null(((0, 0), (0,)), 0)
    assert not ids_of.is_null(((0, 0), (1,)), 0)


@pytest.mark.parametrize(
    ("skip", "want"),
    [(-5, [0, 0]), (3, [0, 0]), (4, [1, 0]), (7, [1, 0]), (12, [2, 1]), (99, [2, 2])],
)
def test_skipped_tokens_are_floored_to_blocks(skip: int, want: list[int]) -> None:
    plan = layout([MLA])
    assert [ids_of.skipped_blocks(plan, chunk, skip)[0] for chunk in range(2)] == want

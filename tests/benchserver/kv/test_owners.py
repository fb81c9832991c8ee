"""Whose bytes they are, of pages made by hand."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.kv.owners import Candidate, describe_owner
from benchserver.kv.pattern import CANARY_BYTE, POISON_BYTE, GroupPattern
from shapespec import parse_shape_spec

U8 = npt.NDArray[np.uint8]
ROOT = b"root of this run"
DIGESTS = (0x1111_2222_3333_4444, 0x5555_6666_7777_8888)
OTHER = (0x9999_AAAA_BBBB_CCCC, 0xDDDD_EEEE_FFFF_0000)
CANDIDATES = (Candidate(label="seq 3", digests=DIGESTS), Candidate(label="seq 9", digests=OTHER))


def pattern_of(text: str = "(2,4,4,1,8):float16:2", first_layer: int = 2) -> GroupPattern:
    group = parse_shape_spec(text).groups[0]
    return GroupPattern(ROOT, group, index=0, first_layer=first_layer, blocks_per_chunk=2)


def page_of(
    pattern: GroupPattern, digest: int, *, rank: int = 0, layer: int = 2, plane: int = 0, block: int
) -> U8:
    keys = pattern.page_keys([digest], rank=rank, layer=layer)
    page: U8 = pattern.expected_page(int(keys[plane, block])).copy()
    return page


def owner_of(pattern: GroupPattern, seen: U8, offset: int = 0) -> str:
    return describe_owner(seen, offset, pattern, CANDIDATES, ranks=4)


def test_owner_of_filled_pages() -> None:
    pattern = pattern_of()
    size = page_of(pattern, DIGESTS[0], block=0).size
    assert owner_of(pattern, np.full(size, POISON_BYTE, np.uint8)) == "poison: nothing was written"
    assert owner_of(pattern, np.full(size, CANARY_BYTE, np.uint8)) == "a canary"
    assert owner_of(pattern, np.zeros(size, np.uint8)) == "zeros"


def test_owner_of_a_partly_written_page() -> None:
    pattern = pattern_of()
    page = page_of(pattern, DIGESTS[0], block=0)
    page[24:] = POISON_BYTE
    assert owner_of(pattern, page, 24) == "poison from byte 24 on: partly written"
    # If the poison ends again, the page is not partly written.
    page[-1] = 0
    assert owner_of(pattern, page, 24) == "bytes of no page of this run"


@given(data=st.data())
def test_another_page_is_named(data: st.DataObject) -> None:
    pattern = pattern_of()
    candidate = data.draw(st.sampled_from(CANDIDATES))
    chunk, block, plane = (data.draw(st.integers(0, 1)) for _ in range(3))
    rank, layer = data.draw(st.integers(0, 3)), data.draw(st.integers(2, 3))
    offset = data.draw(st.integers(0, 63))
    page = page_of(
        pattern, candidate.digests[chunk], rank=rank, layer=layer, plane=plane, block=block
    )
    assert owner_of(pattern, page, offset) == (
        f"the page of {candidate.label} chunk {chunk} rank {rank} layer {layer} "
        f"plane {'KV'[plane]} block {block}"
    )


@pytest.mark.parametrize("rank", [4, 5])
def test_a_page_of_no_candidate_is_nobodys(rank: int) -> None:
    pattern = pattern_of()
    page = page_of(pattern, DIGESTS[0], rank=rank, block=0)
    assert owner_of(pattern, page) == "bytes of no page of this run"
    page = page_of(pattern, 12345, block=0)
    assert owner_of(pattern, page) == "bytes of no page of this run"


def test_a_page_that_two_candidates_share_is_nobodys() -> None:
    pattern, page = pattern_of(), page_of(pattern_of(), DIGESTS[0], block=0)
    twice = (*CANDIDATES, Candidate(label="seq 4", digests=DIGESTS[:1]))
    owner = describe_owner(page, 0, pattern, twice, ranks=1)
    assert owner == "bytes of no page of this run"


def test_pages_of_odd_size_name_no_owner() -> None:
    pattern = pattern_of("(1,4,1,1,11):uint8:2")
    page = page_of(pattern, OTHER[0], block=0)
    assert owner_of(pattern, page) == "bytes of no page of this run"

"""Faults in words, of pages made by hand."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from benchserver.kv.blocks import Window
from benchserver.kv.content import PoolContent, group_patterns
from benchserver.kv.evidence import PageFault, PageOwner
from benchserver.kv.owners import Candidate
from benchserver.kv.pattern import REUSED_MASK
from benchserver.kv.wrongpages import FaultDescriber, PagePlace, first_difference
from shapespec import parse_shape_spec

U8 = npt.NDArray[np.uint8]
SPEC = parse_shape_spec("(2,16,2,1,4):float16:2;(1,16,2,1,8):uint8:1")
PATTERNS = group_patterns(bytes(16), SPEC, 2)
FAULTS = FaultDescriber(content=PoolContent(spec=SPEC, patterns=PATTERNS, rank=1, ranks=2))
WINDOW = Window(first=4, count=4, block_ids=(7, 4, 6, 5), canaries=())
DIGESTS = (10, 20)
PAST = (Candidate(label="seq 4", digests=DIGESTS),)


def page(layer: int, plane: int, column: int, rank: int = 1) -> U8:
    pattern = PATTERNS[0]
    keys = pattern.page_keys(DIGESTS, rank=rank, layer=layer)
    content: U8 = pattern.expected_page(int(keys[plane, column])).copy()
    return content


def test_the_content_of_another_page() -> None:
    place = PagePlace(layer=1, plane=1, column=3)
    right, seen = page(1, 1, 3), page(0, 0, 2, rank=0)
    offset = next(i for i in range(16) if right[i] != seen[i])
    assert FAULTS.wrong(place, WINDOW, DIGESTS, seen, PAST) == PageFault(
        place=PageOwner(label="", chunk=1, rank=1, layer=1, plane="V", block=1),
        group=0,
        block_id=5,
        offset=offset,
        expected=right[offset : offset + 8].tobytes(),
        seen=seen[offset : offset + 8].tobytes(),
        owner="the page of seq 4 chunk 1 rank 0 layer 0 plane K block 0",
    )


def test_a_page_that_is_right_by_now() -> None:
    """Memory may change between the look that found a page wrong and the one that describes it."""
    place = PagePlace(layer=0, plane=0, column=0)
    fault = FAULTS.wrong(place, WINDOW, DIGESTS, page(0, 0, 0), PAST)
    assert (fault.offset, fault.expected) == (0, fault.seen)


def test_a_skipped_page_that_was_written() -> None:
    place = PagePlace(layer=0, plane=0, column=2)
    seen = np.full(16, 0xE5, np.uint8)
    seen[9] = 0
    fault = FAULTS.skipped(place, WINDOW, seen, PAST)
    assert (fault.block_id, fault.offset) == (6, 9)
    assert fault.expected == b"\xe5" * 7
    assert fault.seen == b"\0" + b"\xe5" * 6
    assert fault.owner == "bytes of no page of this run"


def test_a_canary_that_was_written() -> None:
    seen = np.full(16, 0xDA, np.uint8)
    seen[3] = 1
    assert FAULTS.canary(layer=2, plane=0, block_id=9, seen=seen) == PageFault(
        place=PageOwner(label="", chunk=-1, rank=1, layer=2, plane="latent", block=-1),
        group=1,
        block_id=9,
        offset=3,
        expected=b"\xda" * 8,
        seen=b"\x01" + b"\xda" * 7,
        owner="a block or guard that nobody may write",
    )


def test_a_page_of_reused_blocks() -> None:
    place = PagePlace(layer=0, plane=0, column=0)
    right = page(0, 0, 0) ^ np.uint8(REUSED_MASK)
    seen = right.copy()
    seen[5] ^= 1
    fault = FAULTS.wrong(place, WINDOW, DIGESTS, seen, PAST, reused=True)
    assert (fault.offset, fault.expected, fault.seen) == (
        5,
        right[5:13].tobytes(),
        seen[5:13].tobytes(),
    )


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_first_difference(left: bytes, right: bytes) -> None:
    size = min(len(left), len(right))
    a, b = (np.frombuffer(data[:size], np.uint8) for data in (left, right))
    expected = next((i for i in range(size) if left[i] != right[i]), -1)
    assert first_difference(a, b) == expected
    assert first_difference(a, a) == -1

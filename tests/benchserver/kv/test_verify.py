"""From wrong pages to evidence: over pages made by hand, which note what is asked of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from benchserver.kv.blocks import Window
from benchserver.kv.content import PoolContent, group_patterns
from benchserver.kv.evidence import Evidence, EvidenceKind, PageFault
from benchserver.kv.pattern import CANARY_BYTE, POISON_BYTE, REUSED_MASK, U8
from benchserver.kv.pool import Compared, Places
from benchserver.kv.verify import verify, verify_canaries, verify_reused, verify_skipped
from shapespec import parse_shape_spec

SPEC = parse_shape_spec("(2,24,2,1,4):float16:2;(1,24,2,1,8):uint8:1")
CONTENT = PoolContent(spec=SPEC, patterns=group_patterns(bytes(16), SPEC, 2), rank=1, ranks=2)
ROWS = 2 * 2 + 1
"""Pages of a block; each has 16 bytes."""

WINDOW = Window(first=4, count=5, block_ids=(7, 4, 6, 5), canaries=(8,))
DIGESTS = (10, 20)

Row = tuple[int, int, int]
"""Layer, plane, column."""


@dataclass
class Pages:
    """A PageReader whose every page, where it is asked for, holds the same bytes."""

    wrong: Sequence[Row] = ()
    not_filled_with: Mapping[int, Sequence[Row]] = field(default_factory=dict)
    guards: Mapping[int, U8] = field(default_factory=dict)
    holds: int = 0
    stays_reused: bool = False
    content: PoolContent = CONTENT
    asked: list[tuple[object, ...]] = field(default_factory=list)

    def compare(
        self, window: Window, digests: Sequence[int], *, skipped: int = 0, reused: bool = False
    ) -> Compared:
        self.asked.append(("compare", skipped, reused))
        return Compared(places=places(self.wrong), reused=reused and self.stays_reused)

    def not_filled(self, block_ids: Sequence[int], byte: int) -> Places:
        self.asked.append(("not filled", tuple(block_ids), byte))
        return places(self.not_filled_with.get(byte, ()))

    def wrong_guards(self) -> Mapping[int, U8]:
        return self.guards

    def page(self, layer: int, plane: int, block_id: int) -> U8:
        self.asked.append(("page", layer, plane, block_id))
        return np.full(16, self.holds, np.uint8)


def places(rows: Sequence[Row]) -> Places:
    return np.asarray(rows, dtype=np.intp).reshape(-1, 3)


def where(fault: PageFault | None) -> Row:
    """Return a fault's layer, plane, and its column in the block table."""
    assert fault is not None
    return (
        fault.place.layer,
        "KV".find(fault.place.plane),
        2 * fault.place.chunk + fault.place.block,
    )


def test_all_good_fetches_nothing() -> None:
    pages = Pages()
    looks: dict[Callable[[], Evidence], int] = {
        lambda: verify(pages, WINDOW, DIGESTS, ()): 4,
        lambda: verify(pages, WINDOW, DIGESTS, (), skipped=3): 1,
        lambda: verify_reused(pages, WINDOW, DIGESTS, ()): 4,
        lambda: verify_skipped(pages, WINDOW, (), skipped=3): 3,
    }
    for look, blocks in looks.items():
        assert look() == Evidence(
            kind=EvidenceKind.MATCH, pages=blocks * ROWS, checked_bytes=blocks * ROWS * 16
        )
    assert pages.asked == [
        ("compare", 0, False),
        ("compare", 3, False),
        ("compare", 0, True),
        ("not filled", (7, 4, 6), POISON_BYTE),
    ]


def test_only_the_first_wrong_page_is_fetched() -> None:
    """The first of the lowest layer, and there of the lowest column; layers come in any order."""
    pages = Pages(wrong=((2, 0, 0), (1, 0, 3), (1, 1, 2), (1, 1, 3)))
    seen = verify(pages, WINDOW, DIGESTS, ())
    assert (seen.kind, seen.pages, seen.bad_pages) == (EvidenceKind.MISMATCH, 4 * ROWS, 4)
    assert where(seen.first) == (1, 1, 2)
    assert pages.asked == [("compare", 0, False), ("page", 1, 1, 6)]


def test_the_columns_of_a_part_count_from_its_first_block() -> None:
    pages = Pages(wrong=((0, 0, 1),))
    seen = verify(pages, WINDOW, DIGESTS, (), skipped=2)
    assert (seen.pages, seen.bad_pages) == (2 * ROWS, 1)
    assert where(seen.first) == (0, 0, 3)
    assert pages.asked[-1] == ("page", 0, 0, 5)


ALL = tuple(
    (layer, plane, column)
    for layer in range(3)
    for plane in range(2 if layer < 2 else 1)
    for column in range(4)
)


def test_untouched_is_all_wrong_and_all_poison() -> None:
    pages = Pages(wrong=ALL, holds=POISON_BYTE)
    seen = verify(pages, WINDOW, DIGESTS, ())
    assert (seen.kind, seen.bad_pages) == (EvidenceKind.UNTOUCHED, 4 * ROWS)
    assert seen.first is not None
    assert seen.first.owner == "poison: nothing was written"
    assert ("not filled", (7, 4, 6, 5), POISON_BYTE) in pages.asked
    some = Pages(wrong=ALL, not_filled_with={POISON_BYTE: ((1, 0, 0),)})
    assert verify(some, WINDOW, DIGESTS, ()).kind is EvidenceKind.MISMATCH
    one_right = Pages(wrong=ALL[1:])
    assert verify(one_right, WINDOW, DIGESTS, ()).kind is EvidenceKind.MISMATCH
    assert all(asked[0] != "not filled" for asked in one_right.asked)


@pytest.mark.parametrize("stays", [True, False])
def test_reused_pages_are_described_as_they_lie(stays: bool) -> None:
    """Either memory still holds what `reuse` made of its content, or it was turned back."""
    pages = Pages(wrong=((0, 0, 0),), stays_reused=stays)
    seen = verify_reused(pages, WINDOW, DIGESTS, ())
    content = CONTENT.patterns[0].expected_page(int(CONTENT.keys(0, DIGESTS)[0, 0]))
    expected = content ^ np.uint8(REUSED_MASK) if stays else content
    assert seen.first is not None
    at = seen.first.offset
    assert seen.first.expected == expected[at : at + 8].tobytes()


def test_skipped_blocks_must_be_poison() -> None:
    pages = Pages(not_filled_with={POISON_BYTE: ((0, 1, 1), (0, 0, 2))}, holds=POISON_BYTE ^ 1)
    seen = verify_skipped(pages, WINDOW, (), skipped=3)
    assert (seen.kind, seen.pages, seen.bad_pages) == (EvidenceKind.MISMATCH, 3 * ROWS, 2)
    assert where(seen.first) == (0, 1, 1)
    assert seen.first is not None
    assert (seen.first.expected, seen.first.seen) == (b"\xe5" * 8, b"\xe4" * 8)


# The guard before all tensors and those behind them fill up to whole pages of 4096 bytes.
GUARD_BYTES = 4096 + 2 * (8192 - 2 * 24 * 16) + (8192 - 24 * 16)


def test_good_canaries() -> None:
    pages = Pages()
    assert verify_canaries(pages, WINDOW) == Evidence(
        kind=EvidenceKind.MATCH,
        pages=2 * ROWS + 4,
        checked_bytes=2 * ROWS * 16 + GUARD_BYTES,
    )
    assert pages.asked == [("not filled", (0, 8), CANARY_BYTE)]


def test_the_first_canary_of_a_layer_is_that_of_the_first_plane() -> None:
    guards = {2: np.zeros(4096, np.uint8)}
    pages = Pages(not_filled_with={CANARY_BYTE: ((1, 1, 0), (1, 0, 1))}, guards=guards)
    seen = verify_canaries(pages, WINDOW)
    assert (seen.kind, seen.pages, seen.bad_pages) == (EvidenceKind.MISMATCH, 2 * ROWS + 4, 3)
    assert seen.first is not None
    assert (seen.first.place.layer, seen.first.place.plane, seen.first.block_id) == (1, "K", 8)
    assert pages.asked[1:] == [("page", 1, 0, 8)]


@pytest.mark.parametrize(("guard", "layer", "group"), [(0, 0, 0), (1, 0, 0), (2, 1, 0), (3, 2, 1)])
def test_a_guard_is_named_by_the_layer_before_it(guard: int, layer: int, group: int) -> None:
    written = np.full(4096, CANARY_BYTE, np.uint8)
    written[70] = 1
    pages = Pages(guards={3: written, guard: written})
    seen = verify_canaries(pages, WINDOW)
    assert (seen.kind, seen.bad_pages) == (EvidenceKind.MISMATCH, len({3, guard}))
    fault = seen.first
    assert fault is not None
    assert (fault.place.layer, fault.group) == (layer, group)
    assert fault.place.plane == ("K" if group == 0 else "latent")
    assert (fault.block_id, fault.offset) == (-1, 70)


def test_blocks_that_are_not_there_are_refused_before_anybody_looks() -> None:
    pages = Pages()
    beyond = Window(first=20, count=5, block_ids=(20, 21, 22, 23, 24), canaries=())
    with pytest.raises(ValueError, match="of a pool of 24 blocks"):
        verify_skipped(pages, beyond, (), skipped=1)
    with pytest.raises(ValueError, match="of a pool of 24 blocks"):
        verify_canaries(pages, beyond)
    for skipped in (-1, 4):
        with pytest.raises(ValueError, match=f"{skipped} of 4 blocks skipped: none is left"):
            verify(pages, WINDOW, DIGESTS, (), skipped=skipped)
    for skipped in (0, 5):
        with pytest.raises(ValueError, match=f"{skipped} of 4 blocks skipped: none to see"):
            verify_skipped(pages, WINDOW, (), skipped=skipped)
    empty = Window(first=4, count=0, block_ids=(), canaries=())
    for look in (verify, verify_reused):
        with pytest.raises(ValueError, match="0 of 0 blocks skipped: none is left"):
            look(pages, empty, (), ())
    assert pages.asked == []

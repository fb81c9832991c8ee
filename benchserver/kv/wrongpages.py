"""Wrong pages in words: whatever found them and wherever they lie, one description.

Pure: what is wrong comes as a place, and the bytes of the page there as a numpy array.  So pools of
any memory say the same of the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchserver.kv.blocks import Window
from benchserver.kv.content import PoolContent
from benchserver.kv.evidence import PageFault, PageOwner
from benchserver.kv.owners import Candidate, describe_owner
from benchserver.kv.pattern import CANARY_BYTE, POISON_BYTE, REUSED_MASK, U8

SHOWN_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePlace:
    """A page of a block table: `column` counts its entries, `layer` the whole spec's layers."""

    layer: int
    plane: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultDescriber:
    """Describes faults of the pool that should hold `content`."""

    content: PoolContent

    def wrong(
        self,
        place: PagePlace,
        window: Window,
        digests: Sequence[int],
        seen: U8,
        candidates: Sequence[Candidate],
        *,
        reused: bool = False,
    ) -> PageFault:
        """Describe a page that does not hold its content, or that as `reused` blocks hold it."""
        keys = self.content.keys(place.layer, digests)
        pattern = self.content.pattern_of(place.layer)
        expected = pattern.expected_page(int(keys[place.plane, place.column]))
        if reused:
            expected = expected ^ np.uint8(REUSED_MASK)
        return self._page(place, window, seen, expected, candidates)

    def skipped(
        self, place: PagePlace, window: Window, seen: U8, candidates: Sequence[Candidate]
    ) -> PageFault:
        """Describe a page that should be poison still."""
        return self._page(place, window, seen, np.full_like(seen, POISON_BYTE), candidates)

    def _page(
        self,
        place: PagePlace,
        window: Window,
        seen: U8,
        expected: U8,
        candidates: Sequence[Candidate],
    ) -> PageFault:
        pattern = self.content.pattern_of(place.layer)
        chunk, block = divmod(place.column, pattern.blocks_per_chunk)
        offset = max(0, first_difference(seen, expected))
        return PageFault(
            place=PageOwner(
                label="",
                chunk=chunk,
                rank=self.content.rank,
                layer=place.layer,
                plane=pattern.plane_name(place.plane),
                block=block,
            ),
            group=pattern.index,
            block_id=window.block_ids[place.column],
            offset=offset,
            expected=expected[offset : offset + SHOWN_BYTES].tobytes(),
            seen=seen[offset : offset + SHOWN_BYTES].tobytes(),
            owner=describe_owner(seen, offset, pattern, candidates, ranks=self.content.ranks),
        )

    def canary(self, *, layer: int, plane: int, block_id: int, seen: U8) -> PageFault:
        """Describe a canary or null block that was written; a guard has `block_id` -1."""
        offset = max(0, first_difference(seen, np.full_like(seen, CANARY_BYTE)))
        shown = seen[offset : offset + SHOWN_BYTES]
        pattern = self.content.pattern_of(layer)
        return PageFault(
            place=PageOwner(
                label="",
                chunk=-1,
                rank=self.content.rank,
                layer=layer,
                plane=pattern.plane_name(plane),
                block=-1,
            ),
            group=pattern.index,
            block_id=block_id,
            offset=offset,
            expected=bytes([CANARY_BYTE]) * len(shown),
            seen=shown.tobytes(),
            owner="a block or guard that nobody may write",
        )


def first_difference(seen: U8, expected: U8) -> int:
    """Return the offset of the first differing byte, or -1."""
    differs = np.flatnonzero(seen != expected)
    return int(differs[0]) if differs.size else -1

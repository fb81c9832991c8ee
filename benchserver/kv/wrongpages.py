"""Wrong pages in words: whatever found them and wherever they lie, one description.

Pure: what is wrong comes as indices, and the bytes of the first wrong page as a numpy array.  So
pools of any memory say the same of the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchserver.kv.blocks import Window
from benchserver.kv.evidence import PageFault, PageOwner
from benchserver.kv.pattern import CANARY_BYTE, POISON_BYTE, REUSED_MASK, U8, GroupPattern
from benchserver.kv.verify import SHOWN_BYTES, Candidate, describe_owner, first_difference


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePlace:
    """A page of a block table: `column` counts its entries, `layer` the whole spec's layers."""

    group: int
    layer: int
    plane: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultDescriber:
    """Describes faults of one rank's pool; `content_rank` is the rank whose content it holds."""

    patterns: Sequence[GroupPattern]
    content_rank: int
    ranks: int
    blocks_per_chunk: int

    def content(
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
        pattern = self.patterns[place.group]
        keys = pattern.page_keys(
            digests,
            rank=self.content_rank,
            layer=place.layer,
            blocks_per_chunk=self.blocks_per_chunk,
        )
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
        offset = max(0, first_difference(seen, expected))
        return PageFault(
            place=PageOwner(
                label="",
                chunk=place.column // self.blocks_per_chunk,
                rank=self.content_rank,
                layer=place.layer,
                plane=place.plane,
                block=place.column % self.blocks_per_chunk,
            ),
            group=place.group,
            block_id=window.block_ids[place.column],
            offset=offset,
            expected=expected[offset : offset + SHOWN_BYTES].tobytes(),
            seen=seen[offset : offset + SHOWN_BYTES].tobytes(),
            owner=describe_owner(
                seen,
                offset,
                self.patterns[place.group],
                candidates,
                ranks=self.ranks,
                blocks_per_chunk=self.blocks_per_chunk,
            ),
        )

    def canary(self, *, group: int, layer: int, plane: int, block_id: int, seen: U8) -> PageFault:
        """Describe a canary or null block that was written; a guard has `block_id` -1."""
        offset = max(0, first_difference(seen, np.full_like(seen, CANARY_BYTE)))
        shown = seen[offset : offset + SHOWN_BYTES]
        return PageFault(
            place=PageOwner(
                label="", chunk=-1, rank=self.content_rank, layer=layer, plane=plane, block=-1
            ),
            group=group,
            block_id=block_id,
            offset=offset,
            expected=bytes([CANARY_BYTE]) * len(shown),
            seen=shown.tobytes(),
            owner="a block or guard that nobody may write",
        )


def check_skipped(window: Window, skipped: int, *, looked_at: bool) -> None:
    """Raise ValueError if skipping leaves no page to look at, on the side that is `looked_at`.

    True means the skipped blocks themselves, False the rest of the block table.
    """
    blocks = len(window.block_ids)
    if looked_at and not 0 < skipped <= blocks:
        raise ValueError(f"{skipped} of {blocks} blocks skipped: none to see")
    if not looked_at and not 0 <= skipped < blocks:
        raise ValueError(f"{skipped} of {blocks} blocks skipped: none is left")


def check_fillable(window: Window) -> None:
    """Raise ValueError if other blocks lie between those of the window's table."""
    if len(window.block_ids) != window.count:
        raise ValueError(
            f"a window of {window.count} blocks with {len(window.block_ids)} in its table cannot "
            "be filled: only a source window, without canaries, can"
        )

"""From wrong pages to evidence, once for every memory: does each page hold what it must?

Evidence is `match`, `mismatch` (with the first fault), `untouched` (the poison is still there) or
`absent` (nobody looked); only `match` proves anything.  A pool tells which pages are wrong; of
those, only the first is fetched and described.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchserver.kv.blocks import NULL_BLOCKS, Window, check_skipped, check_window
from benchserver.kv.evidence import Evidence, EvidenceKind, PageFault
from benchserver.kv.layout import guard_spans, place_tensors
from benchserver.kv.owners import Candidate
from benchserver.kv.pattern import CANARY_BYTE, POISON_BYTE
from benchserver.kv.pool import Compared, PageReader, Places
from benchserver.kv.wrongpages import FaultDescriber, PagePlace
from shapespec import ShapeSpec, block_bytes, planes


def verify(
    pages: PageReader,
    window: Window,
    digests: Sequence[int],
    candidates: Sequence[Candidate],
    *,
    skipped: int = 0,
) -> Evidence:
    """Look at every byte of the window's blocks, except the first `skipped` of its table.

    Raises ValueError if there is no page left to look at.
    """
    check_skipped(window, skipped, looked_at=False)
    found = pages.compare(window, digests, skipped=skipped)
    return _compared(pages, window, digests, candidates, found, skipped)


def verify_reused(
    pages: PageReader, window: Window, digests: Sequence[int], candidates: Sequence[Candidate]
) -> Evidence:
    """Look at every byte of blocks that `reuse` was called for, and nobody else may write.

    They may hold their content again when this returns.  Raises ValueError without a block.
    """
    check_skipped(window, 0, looked_at=False)
    found = pages.compare(window, digests, reused=True)
    return _compared(pages, window, digests, candidates, found, 0)


def _compared(
    pages: PageReader,
    window: Window,
    digests: Sequence[int],
    candidates: Sequence[Candidate],
    found: Compared,
    skipped: int,
) -> Evidence:
    blocks = window.block_ids[skipped:]
    spec, wrong = pages.content.spec, found.places
    if not len(wrong):
        return _seen(spec, len(blocks), EvidenceKind.MATCH)
    kind = EvidenceKind.MISMATCH
    if len(wrong) == _pages_of(spec, len(blocks)) and not len(
        pages.not_filled(blocks, POISON_BYTE)
    ):
        kind = EvidenceKind.UNTOUCHED
    place = _first(wrong, skipped)
    seen = pages.page(place.layer, place.plane, window.block_ids[place.column])
    fault = FaultDescriber(content=pages.content).wrong(
        place, window, digests, seen, candidates, reused=found.reused
    )
    return _seen(spec, len(blocks), kind, bad_pages=len(wrong), first=fault)


def verify_skipped(
    pages: PageReader, window: Window, candidates: Sequence[Candidate], *, skipped: int
) -> Evidence:
    """Look at every byte of the first `skipped` blocks: each must be poison still.

    Raises ValueError if that is less than a block, or more than there are.
    """
    check_skipped(window, skipped, looked_at=True)
    check_window(window, pages.content.spec.num_blocks)
    wrong = pages.not_filled(window.block_ids[:skipped], POISON_BYTE)
    spec = pages.content.spec
    if not len(wrong):
        return _seen(spec, skipped, EvidenceKind.MATCH)
    place = _first(wrong)
    seen = pages.page(place.layer, place.plane, window.block_ids[place.column])
    fault = FaultDescriber(content=pages.content).skipped(place, window, seen, candidates)
    return _seen(spec, skipped, EvidenceKind.MISMATCH, bad_pages=len(wrong), first=fault)


def verify_canaries(pages: PageReader, window: Window) -> Evidence:
    """Look at every byte that a RETRIEVE into the window must not touch.

    These are the window's canaries, the null block, and the guards between the tensors.
    """
    spec = pages.content.spec
    check_window(window, spec.num_blocks)
    blocks = (*range(NULL_BLOCKS), *window.canaries)
    wrong, guards = pages.not_filled(blocks, CANARY_BYTE), pages.wrong_guards()
    bad_pages = len(wrong) + len(guards)
    first: PageFault | None = None
    if len(wrong):
        place = _first(wrong, by_plane=True)
        block_id = blocks[place.column]
        seen = pages.page(place.layer, place.plane, block_id)
        first = FaultDescriber(content=pages.content).canary(
            layer=place.layer, plane=place.plane, block_id=block_id, seen=seen
        )
    elif guards:
        guard = min(guards)
        first = FaultDescriber(content=pages.content).canary(
            layer=max(0, guard - 1), plane=0, block_id=-1, seen=guards[guard]
        )
    spans = guard_spans(*place_tensors(spec))
    return Evidence(
        kind=EvidenceKind.MISMATCH if bad_pages else EvidenceKind.MATCH,
        pages=_pages_of(spec, len(blocks)) + len(spans),
        bad_pages=bad_pages,
        checked_bytes=len(blocks) * block_bytes(spec) + sum(end - start for start, end in spans),
        first=first,
    )


def _first(places: Places, skipped: int = 0, *, by_plane: bool = False) -> PagePlace:
    """Return the first page: of the first layer, then column, then plane.

    With `by_plane` of the first plane, then column.  Skipped blocks are added to its column.
    """
    layers, planes_of, columns = places.T
    order = (columns, planes_of) if by_plane else (planes_of, columns)
    layer, plane, column = places[np.lexsort((*order, layers))[0]]
    return PagePlace(layer=int(layer), plane=int(plane), column=int(column) + skipped)


def _seen(
    spec: ShapeSpec,
    blocks: int,
    kind: EvidenceKind,
    *,
    bad_pages: int = 0,
    first: PageFault | None = None,
) -> Evidence:
    """Return evidence of all pages of so many blocks."""
    return Evidence(
        kind=kind,
        pages=_pages_of(spec, blocks),
        bad_pages=bad_pages,
        checked_bytes=blocks * block_bytes(spec),
        first=first,
    )


def _pages_of(spec: ShapeSpec, blocks: int) -> int:
    return blocks * sum(group.layers * planes(group) for group in spec.groups)

"""Evidence of parts put together: only what matches everywhere matches."""

from __future__ import annotations

import pytest

from benchserver.kv.evidence import ABSENT, Evidence, EvidenceKind, PageFault, PageOwner, merge


def fault(offset: int) -> PageFault:
    place = PageOwner(label="", chunk=0, rank=0, layer=0, plane="K", block=0)
    return PageFault(
        place=place, group=0, block_id=1, offset=offset, expected=b"a", seen=b"b", owner="x"
    )


def evidence(kind: EvidenceKind, first: PageFault | None = None) -> Evidence:
    bad = 0 if kind is EvidenceKind.MATCH else 1
    return Evidence(kind=kind, pages=2, bad_pages=bad, checked_bytes=10, first=first)


MATCH, MISMATCH, UNTOUCHED = EvidenceKind.MATCH, EvidenceKind.MISMATCH, EvidenceKind.UNTOUCHED


@pytest.mark.parametrize(
    ("kinds", "merged"),
    [
        ([MATCH], MATCH),
        ([MATCH, MATCH], MATCH),
        ([MATCH, MISMATCH], MISMATCH),
        ([UNTOUCHED, UNTOUCHED], UNTOUCHED),
        ([UNTOUCHED, MATCH], MISMATCH),
        ([UNTOUCHED, MISMATCH], MISMATCH),
        ([], EvidenceKind.ABSENT),
        ([MATCH, EvidenceKind.ABSENT], EvidenceKind.ABSENT),
        ([MISMATCH, EvidenceKind.ABSENT], EvidenceKind.ABSENT),
    ],
)
def test_merged_kinds(kinds: list[EvidenceKind], merged: EvidenceKind) -> None:
    assert merge(evidence(kind) for kind in kinds).kind is merged


def test_merge_adds_up_and_keeps_the_first_fault() -> None:
    parts = [evidence(MATCH), evidence(MISMATCH, fault(5)), evidence(MISMATCH, fault(6))]
    assert merge(parts) == Evidence(
        kind=MISMATCH, pages=6, bad_pages=2, checked_bytes=30, first=fault(5)
    )
    assert merge([]) == ABSENT

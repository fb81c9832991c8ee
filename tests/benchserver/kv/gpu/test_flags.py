"""From flags to evidence: numpy arrays made by hand; the copy to the host needs torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchserver.kv.evidence import EvidenceKind, PageFault, PageOwner
from benchserver.kv.gpu.flags import FirstFault, Found, fetch_flags, layer_evidence
from benchserver.kv.gpu.views import GroupView
from shapespec import parse_shape_spec

VIEW = GroupView(
    index=0,
    spec=parse_shape_spec("(2,16,2,1,4):float16:3").groups[0],
    layers=range(3),
    pages=None,
    guards=None,
)


def described(found: Found) -> PageFault:
    place = PageOwner(
        label="", chunk=0, rank=0, layer=found.layer, plane=found.plane, block=found.column
    )
    return PageFault(
        place=place, group=0, block_id=1, offset=0, expected=b"", seen=b"", owner="somebody"
    )


def flags(*wrong: tuple[int, int, int]) -> Any:
    found = np.zeros((3, 2, 4), np.int8)
    for place in wrong:
        found[place] = 1
    return found


def test_only_the_first_fault_is_described() -> None:
    wrong = flags((1, 0, 3), (1, 1, 2), (2, 0, 0))
    parts = layer_evidence(VIEW, wrong, FirstFault(), described)
    assert [part.kind for part in parts] == [
        EvidenceKind.MATCH,
        EvidenceKind.MISMATCH,
        EvidenceKind.MISMATCH,
    ]
    assert [(p.pages, p.bad_pages, p.checked_bytes) for p in parts] == [
        (8, 0, 128),
        (8, 2, 128),
        (8, 1, 128),
    ]
    assert parts[1].first == described(Found(layer=1, plane=1, column=2))
    assert parts[2].first is None


def test_the_order_of_planes_or_columns() -> None:
    wrong = flags((0, 0, 3), (0, 1, 2))
    by_column = layer_evidence(VIEW, wrong, FirstFault(), described)
    by_plane = layer_evidence(VIEW, wrong, FirstFault(), described, by_plane=True)
    assert by_column[0].first == described(Found(layer=0, plane=1, column=2))
    assert by_plane[0].first == described(Found(layer=0, plane=0, column=3))


def test_untouched_is_all_wrong_and_all_poison() -> None:
    all_wrong = np.ones((3, 2, 4), np.bool_)
    poisoned = np.ones((3, 2, 4), np.bool_)
    poisoned[1, 0, 0] = False
    kinds = [
        part.kind
        for part in layer_evidence(VIEW, all_wrong, FirstFault(), described, poisoned=poisoned)
    ]
    assert kinds == [EvidenceKind.UNTOUCHED, EvidenceKind.MISMATCH, EvidenceKind.UNTOUCHED]
    kinds = [part.kind for part in layer_evidence(VIEW, all_wrong, FirstFault(), described)]
    assert kinds == [EvidenceKind.MISMATCH] * 3
    some = flags((0, 0, 0))
    parts = layer_evidence(VIEW, some, FirstFault(), described, poisoned=np.ones_like(some))
    assert [p.kind for p in parts][:2] == [EvidenceKind.MISMATCH, EvidenceKind.MATCH]


@pytest.mark.torch
def test_flags_come_in_one_piece_and_keep_their_shapes() -> None:
    import torch

    first = torch.tensor([[0, 2], [0, 0]], dtype=torch.int8)
    second = torch.tensor([True, False, True])
    seen = fetch_flags([first, second])
    assert seen[0].tolist() == [[False, True], [False, False]]
    assert seen[1].tolist() == [True, False, True]

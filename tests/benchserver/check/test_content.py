"""Bytes judged: content and canaries of every reading rank; good, bad and unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from benchserver.check.content import (
    CANARIES,
    CONTENT,
    SOURCE,
    canaries,
    content,
    fault_text,
    source,
)
from benchserver.check.verdict import failed, not_looked_at, passed
from benchserver.history import EvidenceRecord, SequenceRecord, SourceRecord
from benchserver.kv.evidence import ABSENT, Evidence, EvidenceKind, PageFault, PageOwner

GoodSequence = Callable[..., SequenceRecord]

FAULT = PageFault(
    place=PageOwner(label="", chunk=1, rank=0, layer=31, plane="V", block=3),
    group=0,
    block_id=17,
    offset=4095,
    expected=b"\x01\x02",
    seen=b"\xe5\xe5",
    owner="poison: nothing was written",
)
CANARY = PageFault(
    place=PageOwner(label="", chunk=-1, rank=0, layer=2, plane="K", block=-1),
    group=1,
    block_id=0,
    offset=0,
    expected=b"\xda",
    seen=b"\x00",
    owner="a block or guard that nobody may write",
)


def evidence(kind: EvidenceKind, first: PageFault | None = FAULT) -> Evidence:
    return Evidence(kind=kind, pages=64, bad_pages=3, checked_bytes=4096, first=first)


def with_evidence(
    record: SequenceRecord,
    rank: int,
    *,
    seen: Evidence | None = None,
    beside: Evidence | None = None,
) -> SequenceRecord:
    """Replace what one rank's blocks, or their neighbours, hold."""
    steps = tuple(
        replace(step, content=seen or step.content, canaries=beside or step.canaries)
        if isinstance(step, EvidenceRecord) and step.rank == rank
        else step
        for step in record.steps
    )
    return replace(record, steps=steps)


def without_evidence(record: SequenceRecord, rank: int) -> SequenceRecord:
    steps = tuple(
        step
        for step in record.steps
        if not (isinstance(step, EvidenceRecord) and step.rank == rank)
    )
    return replace(record, steps=steps)


@pytest.mark.parametrize("mla", [False, True])
def test_good(good_sequence: GoodSequence, mla: bool) -> None:
    assert content(good_sequence(mla=mla)) == [passed(CONTENT)] * 2
    assert canaries(good_sequence(mla=mla)) == [passed(CANARIES)] * 2


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (EvidenceKind.MISMATCH, "wrong"),
        (EvidenceKind.UNTOUCHED, "untouched by RETRIEVE"),
    ],
)
def test_wrong_bytes_of_one_rank(
    good_sequence: GoodSequence, kind: EvidenceKind, what: str
) -> None:
    record = with_evidence(good_sequence(), 1, seen=evidence(kind))
    assert content(record) == [
        passed(CONTENT),
        failed(
            CONTENT,
            f"seq=3 rank=1: CHECKSUM MISMATCH, leg destination, 3 of 64 pages {what}: chunk 1, "
            "group 0, layer 31, plane V, block id 17, first at byte 4095: expected 0102, seen "
            "e5e5 (poison: nothing was written)",
        ),
    ]
    assert canaries(record) == [passed(CANARIES)] * 2


def test_a_canary_that_was_written(good_sequence: GoodSequence) -> None:
    record = with_evidence(good_sequence(), 0, beside=evidence(EvidenceKind.MISMATCH, CANARY))
    assert canaries(record) == [
        failed(
            CANARIES,
            "seq=3 rank=0: CANARY OVERWRITTEN, 3 of 64 pages: group 1, layer 2, plane K, block id "
            "0, first at byte 0: expected da, seen 00 (a block or guard that nobody may write)",
        ),
        passed(CANARIES),
    ]
    assert content(record) == [passed(CONTENT)] * 2


@pytest.mark.parametrize("absent", [False, True])
def test_bytes_that_nobody_looked_at(good_sequence: GoodSequence, absent: bool) -> None:
    record = (
        with_evidence(good_sequence(), 1, seen=ABSENT, beside=ABSENT)
        if absent
        else without_evidence(good_sequence(), 1)
    )
    text = "seq=3 rank=1: nobody could look at the bytes"
    assert content(record) == [passed(CONTENT), not_looked_at(CONTENT, text)]
    assert canaries(record) == [passed(CANARIES), not_looked_at(CANARIES, text)]


@pytest.mark.parametrize(("mla", "writers"), [(False, 2), (True, 1)])
def test_good_sources(good_sequence: GoodSequence, mla: bool, writers: int) -> None:
    assert source(good_sequence(mla=mla)) == [passed(SOURCE)] * writers
    assert source(good_sequence(expect_warm=True)) == []


@pytest.mark.parametrize("kind", [EvidenceKind.MISMATCH, EvidenceKind.UNTOUCHED])
def test_a_source_that_was_altered(good_sequence: GoodSequence, kind: EvidenceKind) -> None:
    record = good_sequence()
    steps = tuple(
        replace(step, content=evidence(kind))
        if isinstance(step, SourceRecord) and step.rank == 1
        else step
        for step in record.steps
    )
    assert source(replace(record, steps=steps)) == [
        passed(SOURCE),
        failed(
            SOURCE,
            "seq=3 rank=1: CHECKSUM MISMATCH, leg source, 3 of 64 pages were altered: chunk 1, "
            "group 0, layer 31, plane V, block id 17, first at byte 4095: expected 0102, seen "
            "e5e5 (poison: nothing was written)",
        ),
    ]


def test_sources_that_nobody_looked_at(good_sequence: GoodSequence) -> None:
    record = good_sequence()
    unseen = tuple(
        replace(step, content=ABSENT) if isinstance(step, SourceRecord) else step
        for step in record.steps
        if not (isinstance(step, SourceRecord) and step.rank == 0)
    )
    assert source(replace(record, steps=unseen)) == [
        not_looked_at(SOURCE, f"seq=3 rank={rank}: nobody could look at the bytes")
        for rank in (0, 1)
    ]


def test_a_guard_has_no_block() -> None:
    text = fault_text(replace(CANARY, block_id=-1))
    assert text.startswith("group 1, layer 2, plane K, guard beside the tensor, first at byte 0:")


def test_without_a_recorded_page() -> None:
    assert fault_text(None) == "no page recorded"

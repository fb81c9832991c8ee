"""RETRIEVEs that skip tokens judged: good, bad and unknown histories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from benchserver.check.partial import partial
from benchserver.check.transfers import retrieves
from benchserver.check.verdict import Check, failed, not_looked_at, passed, unproven
from benchserver.history import (
    LookupRecord,
    Outcome,
    PartialRecord,
    Pass,
    SequenceRecord,
    Step,
    TransferRecord,
)
from benchserver.kv.evidence import ABSENT, Evidence, EvidenceKind, PageFault, PageOwner
from benchserver.load.probes import Probe

GoodSequence = Callable[..., SequenceRecord]
Pick = Callable[[Step], bool]

FAULT = PageFault(
    place=PageOwner(label="", chunk=0, rank=0, layer=2, plane=1, block=1),
    group=0,
    block_id=17,
    offset=0,
    expected=b"\xe5",
    seen=b"\x00",
    owner="the page of seq 3 chunk 0",
)
WRITTEN = Evidence(kind=EvidenceKind.MISMATCH, pages=12, bad_pages=3, checked_bytes=96, first=FAULT)
WHERE = (
    "3 of 12 pages: chunk 0, group 0, layer 2, plane 1, block id 17, first at byte 0: expected e5, "
    "seen 00 (the page of seq 3 chunk 0)"
)
GOOD = passed(Check.PARTIAL)


def lookup(step: Step) -> bool:
    return isinstance(step, LookupRecord) and step.which is Pass.PARTIAL


def moved(step: Step) -> bool:
    return isinstance(step, TransferRecord) and step.skip_tokens > 0 and step.rank == 1


def seen(step: Step) -> bool:
    return isinstance(step, PartialRecord) and step.rank == 1


def changed(record: SequenceRecord, pick: Pick, **changes: Any) -> SequenceRecord:
    steps = tuple(replace(step, **changes) if pick(step) else step for step in record.steps)
    assert steps != record.steps
    return replace(record, steps=steps)


def without(record: SequenceRecord, pick: Pick) -> SequenceRecord:
    return replace(record, steps=tuple(step for step in record.steps if not pick(step)))


@pytest.mark.parametrize("expect_warm", [False, True])
def test_good(good_sequence: GoodSequence, expect_warm: bool) -> None:
    assert partial(good_sequence(probes=frozenset({Probe.PARTIAL}), expect_warm=expect_warm)) == [
        GOOD,
        GOOD,
    ]


def test_most_sequences_have_none(good_sequence: GoodSequence) -> None:
    assert partial(good_sequence()) == []


@pytest.mark.parametrize(
    ("part", "what"),
    [
        ("skipped", "SKIPPED BLOCKS OVERWRITTEN"),
        ("restored", "CHECKSUM MISMATCH of the blocks behind them"),
        ("canaries", "CANARY OVERWRITTEN"),
    ],
)
def test_wrong_bytes_of_one_rank(good_sequence: GoodSequence, part: str, what: str) -> None:
    record = changed(good_sequence(probes=frozenset({Probe.PARTIAL})), seen, **{part: WRITTEN})
    text = f"seq=3 rank=1: RETRIEVE but for the first 40 tokens: {what}, {WHERE}"
    assert partial(record) == [GOOD, failed(Check.PARTIAL, text)]


def test_what_nobody_wrote_is_wrong(good_sequence: GoodSequence) -> None:
    untouched = replace(WRITTEN, kind=EvidenceKind.UNTOUCHED)
    record = changed(good_sequence(probes=frozenset({Probe.PARTIAL})), seen, restored=untouched)
    assert "CHECKSUM MISMATCH of the blocks behind them" in partial(record)[1].text


@pytest.mark.parametrize("part", ["skipped", "restored", "canaries", ""])
def test_bytes_that_nobody_looked_at(good_sequence: GoodSequence, part: str) -> None:
    good = good_sequence(probes=frozenset({Probe.PARTIAL}))
    record = changed(good, seen, **{part: ABSENT}) if part else without(good, seen)
    text = "seq=3 rank=1: RETRIEVE but for the first 40 tokens: nobody could look at the bytes"
    assert partial(record) == [GOOD, not_looked_at(Check.PARTIAL, text)]


def test_transfers_that_did_not_go_well(good_sequence: GoodSequence) -> None:
    good = good_sequence(probes=frozenset({Probe.PARTIAL}))
    place = "seq=3 rank=1: RETRIEVE but for the first"
    refused = changed(good, moved, outcome=Outcome.FAIL, reason="RETRIEVE answered False")
    text = f"{place} 40 tokens: RETRIEVE answered False"
    assert partial(refused) == [GOOD, failed(Check.PARTIAL, text)]
    lost = changed(good, moved, outcome=Outcome.UNKNOWN, reason="no answer")
    assert partial(lost) == [GOOD, unproven(Check.PARTIAL, f"{place} 40 tokens: no answer")]
    missing = without(good, moved)
    assert partial(missing) == [
        GOOD,
        not_looked_at(Check.PARTIAL, f"{place} tokens did not happen"),
    ]
    for record in (refused, lost, missing):
        assert retrieves(record) == [passed(Check.RETRIEVE)] * 2


def test_a_part_is_no_whole(good_sequence: GoodSequence) -> None:
    def whole(step: Step) -> bool:
        if not isinstance(step, TransferRecord) or step.skip_tokens:
            return False
        return (step.name, step.rank) == ("RETRIEVE", 1)

    record = without(good_sequence(probes=frozenset({Probe.PARTIAL})), whole)
    text = "seq=3 rank=1: RETRIEVE did not happen"
    assert retrieves(record) == [passed(Check.RETRIEVE), not_looked_at(Check.RETRIEVE, text)]


def test_the_lookup_before(good_sequence: GoodSequence) -> None:
    good = good_sequence(probes=frozenset({Probe.PARTIAL}))
    place = "seq=3: LOOKUP before the partial RETRIEVE"
    assert partial(changed(good, lookup, hits=1)) == [
        failed(Check.PARTIAL, f"{place} hit 1/2 chunks, expected 2/2")
    ]
    assert partial(changed(good, lookup, outcome=Outcome.UNKNOWN, reason="no answer")) == [
        unproven(Check.PARTIAL, f"{place}: no answer")
    ]
    assert partial(without(good, lookup)) == [
        not_looked_at(Check.PARTIAL, "seq=3: no partial RETRIEVE was made")
    ]

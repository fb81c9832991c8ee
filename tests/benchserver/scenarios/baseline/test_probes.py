"""What lookups aside and RETRIEVEs in part must show, and which probes a sequence has made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from benchserver.check.digests import DIGESTS, digests
from benchserver.check.run import new_ledger
from benchserver.check.transfers import RETRIEVE, retrieves
from benchserver.check.verdict import Verdict, failed, not_looked_at, passed, unproven
from benchserver.history import (
    EvidenceRecord,
    LookupRecord,
    Outcome,
    PartialRecord,
    Probe,
    SequenceRecord,
    Step,
    TransferRecord,
)
from benchserver.kv.evidence import ABSENT, Evidence, EvidenceKind, PageFault, PageOwner
from benchserver.scenarios.baseline.checks import CHECKS
from benchserver.scenarios.baseline.plan import (
    EQUAL_CHUNKS,
    OTHER_TENANTS,
    PROBES,
    REUSED_SOURCE,
    SHORTER_RANGE,
    SKIPPED_TOKENS,
    Pass,
)
from benchserver.scenarios.baseline.probes import (
    BOUNDS,
    PARTIAL,
    bounds,
    isolation,
    partial,
    probes_made,
)

ALL = frozenset(PROBES)
BAD = Evidence(kind=EvidenceKind.MISMATCH, pages=4, bad_pages=3, checked_bytes=4096)

GoodSequence = Callable[..., SequenceRecord]


def with_lookup(record: SequenceRecord, which: Pass, **changes: Any) -> SequenceRecord:
    steps = tuple(
        replace(step, **changes) if isinstance(step, LookupRecord) and step.which == which else step
        for step in record.steps
    )
    return replace(record, steps=steps)


def without(record: SequenceRecord, kind: type, which: Pass | None = None) -> SequenceRecord:
    steps = tuple(
        step
        for step in record.steps
        if not (isinstance(step, kind) and (which is None or getattr(step, "which", 0) == which))
    )
    return replace(record, steps=steps)


def test_lookups_that_answer_as_they_must_pass(good_sequence: GoodSequence) -> None:
    record = good_sequence(probes=ALL)
    assert [f.verdict for f in isolation(record)] == [Verdict.VALID] * 2
    assert [f.verdict for f in bounds(record)] == [Verdict.VALID]


def test_a_sequence_that_owes_none_is_not_judged(good_sequence: GoodSequence) -> None:
    assert isolation(good_sequence()) == bounds(good_sequence()) == []


@pytest.mark.parametrize(
    ("which", "check", "words"),
    [
        (Pass.SALT, isolation, "another cache salt hit 2/2 chunks, expected 0/2"),
        (Pass.MODEL, isolation, "another model name hit 2/2 chunks, expected 0/2"),
        (Pass.BOUNDS, bounds, "ends before the stored end hit 2/2 chunks, expected 1/2"),
    ],
)
def test_a_lookup_that_hits_otherwise_fails(
    good_sequence: GoodSequence,
    which: Pass,
    check: Callable[[SequenceRecord], list[object]],
    words: str,
) -> None:
    record = with_lookup(good_sequence(probes=ALL), which, hits=2)
    bad = [f for f in isolation(record) + bounds(record) if f.verdict is not Verdict.VALID]
    assert [f.verdict for f in bad] == [Verdict.INVALID]
    assert words in bad[0].text
    assert bad[0].text.startswith("seq=3: ")
    assert bad[0] in check(record)


@pytest.mark.parametrize("which", [Pass.SALT, Pass.MODEL, Pass.BOUNDS])
def test_a_lookup_that_did_not_happen_or_was_not_answered_is_unproven(
    good_sequence: GoodSequence, which: Pass
) -> None:
    good = good_sequence(probes=ALL)
    silent = with_lookup(good, which, outcome=Outcome.UNKNOWN, reason="no answer within 10 s")
    for record, words in (
        (without(good, LookupRecord, which), "was not made"),
        (silent, "no answer within 10 s"),
    ):
        bad = [f for f in isolation(record) + bounds(record) if f.verdict is not Verdict.VALID]
        assert [f.verdict for f in bad] == [Verdict.UNKNOWN]
        assert words in bad[0].text


def test_a_sequence_has_made_what_it_shows(good_sequence: GoodSequence) -> None:
    assert probes_made(good_sequence(probes=ALL)) == ALL
    assert probes_made(good_sequence()) == frozenset()


@pytest.mark.parametrize(
    ("kind", "which", "gone"),
    [
        (EvidenceRecord, None, {EQUAL_CHUNKS, REUSED_SOURCE}),
        (PartialRecord, None, {SKIPPED_TOKENS}),
        (LookupRecord, Pass.SALT, {OTHER_TENANTS}),
        (LookupRecord, Pass.MODEL, {OTHER_TENANTS}),
        (LookupRecord, Pass.BOUNDS, {SHORTER_RANGE}),
    ],
)
def test_what_was_not_seen_was_not_made(
    good_sequence: GoodSequence, kind: type, which: Pass | None, gone: set[Probe]
) -> None:
    record = without(good_sequence(probes=ALL), kind, which)
    assert probes_made(record) == ALL - gone


def test_bytes_that_nobody_could_look_at_were_not_made(good_sequence: GoodSequence) -> None:
    good = good_sequence(probes=ALL)
    steps = tuple(
        replace(step, content=ABSENT) if isinstance(step, EvidenceRecord) else step
        for step in good.steps
    )
    assert probes_made(replace(good, steps=steps)) == ALL - {
        EQUAL_CHUNKS,
        REUSED_SOURCE,
    }


def test_an_overwritten_source_has_no_digests(good_sequence: GoodSequence) -> None:
    assert [len(digests(good_sequence(overwritten=flag))) for flag in (False, True)] == [4, 2]


def test_a_ledger_names_what_was_owed_and_not_looked_at() -> None:
    ledger = new_ledger(CHECKS, PROBES)
    ledger.rule_out(EQUAL_CHUNKS, "a sequence is one chunk")
    ledger.skip(DIGESTS, "--no-http")
    ledger.skip(BOUNDS, "a sequence is one chunk")
    ledger.add_probes([SKIPPED_TOKENS, OTHER_TENANTS])
    assert ledger.not_evaluated() == {
        "digests": "--no-http",
        "bounds": "a sequence is one chunk",
        "equal_chunks": "a sequence is one chunk",
        "reused_source": "the run did not get that far",
    }


Pick = Callable[[Step], bool]

FAULT = PageFault(
    place=PageOwner(label="", chunk=0, rank=0, layer=2, plane="V", block=1),
    group=0,
    block_id=17,
    offset=0,
    expected=b"\xe5",
    seen=b"\x00",
    owner="the page of seq 3 chunk 0",
)
WRITTEN = Evidence(kind=EvidenceKind.MISMATCH, pages=12, bad_pages=3, checked_bytes=96, first=FAULT)
WHERE = (
    "3 of 12 pages: chunk 0, group 0, layer 2, plane V, block id 17, first at byte 0: expected e5, "
    "seen 00 (the page of seq 3 chunk 0)"
)
GOOD = passed(PARTIAL)


def asked_again(step: Step) -> bool:
    return isinstance(step, LookupRecord) and step.which == Pass.PARTIAL


def moved(step: Step) -> bool:
    return isinstance(step, TransferRecord) and step.skip_tokens > 0 and step.rank == 1


def seen(step: Step) -> bool:
    return isinstance(step, PartialRecord) and step.rank == 1


def changed(record: SequenceRecord, pick: Pick, **changes: Any) -> SequenceRecord:
    steps = tuple(replace(step, **changes) if pick(step) else step for step in record.steps)
    assert steps != record.steps
    return replace(record, steps=steps)


def without_steps(record: SequenceRecord, pick: Pick) -> SequenceRecord:
    return replace(record, steps=tuple(step for step in record.steps if not pick(step)))


@pytest.mark.parametrize("expect_warm", [False, True])
def test_good(good_sequence: GoodSequence, expect_warm: bool) -> None:
    assert partial(good_sequence(probes=frozenset({SKIPPED_TOKENS}), expect_warm=expect_warm)) == [
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
    record = changed(good_sequence(probes=frozenset({SKIPPED_TOKENS})), seen, **{part: WRITTEN})
    text = f"seq=3 rank=1: RETRIEVE without the first 40 tokens: {what}, {WHERE}"
    assert partial(record) == [GOOD, failed(PARTIAL, text)]


def test_what_nobody_wrote_is_wrong(good_sequence: GoodSequence) -> None:
    untouched = replace(WRITTEN, kind=EvidenceKind.UNTOUCHED)
    record = changed(good_sequence(probes=frozenset({SKIPPED_TOKENS})), seen, restored=untouched)
    assert "CHECKSUM MISMATCH of the blocks behind them" in partial(record)[1].text


@pytest.mark.parametrize("part", ["skipped", "restored", "canaries", ""])
def test_bytes_that_nobody_looked_at(good_sequence: GoodSequence, part: str) -> None:
    good = good_sequence(probes=frozenset({SKIPPED_TOKENS}))
    record = changed(good, seen, **{part: ABSENT}) if part else without_steps(good, seen)
    text = "seq=3 rank=1: RETRIEVE without the first 40 tokens: nobody could look at the bytes"
    assert partial(record) == [GOOD, not_looked_at(PARTIAL, text)]


def test_transfers_that_did_not_go_well(good_sequence: GoodSequence) -> None:
    good = good_sequence(probes=frozenset({SKIPPED_TOKENS}))
    place = "seq=3 rank=1: RETRIEVE without the first"
    refused = changed(good, moved, outcome=Outcome.FAIL, reason="RETRIEVE answered False")
    text = f"{place} 40 tokens: RETRIEVE answered False"
    assert partial(refused) == [GOOD, failed(PARTIAL, text)]
    lost = changed(good, moved, outcome=Outcome.UNKNOWN, reason="no answer")
    assert partial(lost) == [GOOD, unproven(PARTIAL, f"{place} 40 tokens: no answer")]
    missing = without_steps(good, moved)
    assert partial(missing) == [
        GOOD,
        not_looked_at(PARTIAL, f"{place} tokens did not happen"),
    ]
    for record in (refused, lost, missing):
        assert retrieves(record) == [passed(RETRIEVE)] * 2


def test_a_part_is_no_whole(good_sequence: GoodSequence) -> None:
    def whole(step: Step) -> bool:
        if not isinstance(step, TransferRecord) or step.skip_tokens:
            return False
        return (step.name, step.rank) == ("RETRIEVE", 1)

    record = without_steps(good_sequence(probes=frozenset({SKIPPED_TOKENS})), whole)
    text = "seq=3 rank=1: RETRIEVE did not happen"
    assert retrieves(record) == [passed(RETRIEVE), not_looked_at(RETRIEVE, text)]


def test_the_lookup_before(good_sequence: GoodSequence) -> None:
    good = good_sequence(probes=frozenset({SKIPPED_TOKENS}))
    place = "seq=3: LOOKUP before the partial RETRIEVE"
    assert partial(changed(good, asked_again, hits=1)) == [
        failed(PARTIAL, f"{place} hit 1/2 chunks, expected 2/2")
    ]
    assert partial(changed(good, asked_again, outcome=Outcome.UNKNOWN, reason="no answer")) == [
        unproven(PARTIAL, f"{place}: no answer")
    ]
    assert partial(without_steps(good, asked_again)) == [
        not_looked_at(PARTIAL, "seq=3: no partial RETRIEVE was made")
    ]

"""What the lookups aside must answer, and which probes a sequence has made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from benchserver.check.digests import digests
from benchserver.check.probes import bounds, isolation, probes_made
from benchserver.check.verdict import Check, Ledger, Verdict
from benchserver.history import (
    EvidenceRecord,
    LookupRecord,
    Outcome,
    PartialRecord,
    Pass,
    SequenceRecord,
)
from benchserver.kv.evidence import Evidence, EvidenceKind
from benchserver.load.probes import Probe

ALL = frozenset(Probe)
ABSENT = Evidence(kind=EvidenceKind.ABSENT, pages=0, checked_bytes=0)
BAD = Evidence(kind=EvidenceKind.MISMATCH, pages=4, bad_pages=3, checked_bytes=4096)

GoodSequence = Callable[..., SequenceRecord]


def with_lookup(record: SequenceRecord, which: Pass, **changes: Any) -> SequenceRecord:
    steps = tuple(
        replace(step, **changes) if isinstance(step, LookupRecord) and step.which is which else step
        for step in record.steps
    )
    return replace(record, steps=steps)


def without(record: SequenceRecord, kind: type, which: Pass | None = None) -> SequenceRecord:
    steps = tuple(
        step
        for step in record.steps
        if not (isinstance(step, kind) and (which is None or getattr(step, "which", 0) is which))
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
        (EvidenceRecord, None, {Probe.EQUAL_CHUNKS, Probe.REUSED_SOURCE}),
        (PartialRecord, None, {Probe.PARTIAL}),
        (LookupRecord, Pass.SALT, {Probe.ISOLATION}),
        (LookupRecord, Pass.MODEL, {Probe.ISOLATION}),
        (LookupRecord, Pass.BOUNDS, {Probe.BOUNDS}),
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
        Probe.EQUAL_CHUNKS,
        Probe.REUSED_SOURCE,
    }


def test_an_overwritten_source_has_no_digests(good_sequence: GoodSequence) -> None:
    assert [len(digests(good_sequence(overwritten=flag))) for flag in (False, True)] == [4, 2]


def test_a_ledger_names_what_was_owed_and_not_looked_at() -> None:
    ledger = Ledger()
    ledger.rule_out(Probe.EQUAL_CHUNKS, "a sequence is one chunk")
    ledger.skip(Check.DIGESTS, "--no-http")
    ledger.skip(Check.BOUNDS, "a sequence is one chunk")
    ledger.add_probes([Probe.PARTIAL, Probe.ISOLATION])
    assert ledger.not_evaluated() == {
        "digests": "--no-http",
        "bounds": "a sequence is one chunk",
        "equal_chunks": "a sequence is one chunk",
        "reused_source": "no sequence came so far",
    }

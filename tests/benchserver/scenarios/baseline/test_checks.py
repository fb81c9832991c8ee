"""Whole histories of the baseline judged, and its LOOKUPs: good, bad and unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from benchserver.check.content import CANARIES, CONTENT, SOURCE
from benchserver.check.digests import DIGESTS
from benchserver.check.dropped import DROPPED
from benchserver.check.judging import judge
from benchserver.check.sessions import SESSIONS
from benchserver.check.transfers import RETRIEVE, STORE
from benchserver.check.verdict import (
    Check,
    Finding,
    Verdict,
    failed,
    not_looked_at,
    passed,
    unproven,
    worst,
)
from benchserver.history import LookupRecord, Outcome, SequenceRecord
from benchserver.scenarios.baseline.checks import (
    COLD_LOOKUP,
    JUDGES,
    VISIBILITY,
    WARM_LOOKUP,
    cold_lookup,
    visibility,
    warm_lookup,
)
from benchserver.scenarios.baseline.plan import PROBES, Pass
from benchserver.scenarios.baseline.probes import BOUNDS, ISOLATION, PARTIAL

GoodSequence = Callable[..., SequenceRecord]
MakeLookup = Callable[..., SequenceRecord]


@pytest.fixture
def with_lookup(good_sequence: GoodSequence) -> MakeLookup:
    """Return a maker of a good history with one pass's lookup changed; two chunks."""

    def make(which: Pass, *, expect_warm: bool = False, **changes: Any) -> SequenceRecord:
        record = good_sequence(expect_warm=expect_warm)
        steps = tuple(
            replace(step, **changes)
            if isinstance(step, LookupRecord) and step.which == which
            else step
            for step in record.steps
        )
        assert steps != record.steps
        return replace(record, steps=steps)

    return make


def without(record: SequenceRecord, which: Pass) -> SequenceRecord:
    steps = tuple(
        step
        for step in record.steps
        if not (isinstance(step, LookupRecord) and step.which == which)
    )
    return replace(record, steps=steps)


NO_ANSWER = {"outcome": Outcome.UNKNOWN, "hits": 0, "reason": "LOOKUP: no answer within 10 s"}


@pytest.mark.parametrize("expect_warm", [False, True])
def test_cold_lookups_that_are_right(good_sequence: GoodSequence, expect_warm: bool) -> None:
    assert cold_lookup(good_sequence(expect_warm=expect_warm)) == [passed(COLD_LOOKUP)]


@pytest.mark.parametrize(
    ("expect_warm", "hits", "text"),
    [
        (
            False,
            2,
            "hit 2/2 chunks, expected 0/2: the server counts wrongly, or an earlier run with this "
            "--seed stored them (clear the cache, take another seed, or use --expect-warm)",
        ),
        (
            False,
            1,
            "hit 1/2 chunks, expected 0/2: the server counts wrongly, or an earlier run with this "
            "--seed stored them (clear the cache, take another seed, or use --expect-warm)",
        ),
        (
            True,
            1,
            "hit 1/2 chunks, expected 2/2: the cache does not hold what an earlier run with this "
            "seed stored",
        ),
        (
            True,
            0,
            "hit 0/2 chunks, expected 2/2: the cache does not hold what an earlier run with this "
            "seed stored",
        ),
    ],
)
def test_cold_lookups_that_are_wrong(
    with_lookup: MakeLookup, expect_warm: bool, hits: int, text: str
) -> None:
    record = with_lookup(Pass.COLD, expect_warm=expect_warm, hits=hits)
    assert cold_lookup(record) == [failed(COLD_LOOKUP, f"seq=3: cold LOOKUP {text}")]


def test_cold_lookups_without_an_answer(
    with_lookup: MakeLookup, good_sequence: GoodSequence
) -> None:
    assert cold_lookup(with_lookup(Pass.COLD, **NO_ANSWER)) == [
        unproven(COLD_LOOKUP, "seq=3: cold LOOKUP: LOOKUP: no answer within 10 s")
    ]
    assert cold_lookup(without(good_sequence(), Pass.COLD)) == [
        not_looked_at(COLD_LOOKUP, "seq=3: the cold LOOKUP did not happen")
    ]


@pytest.mark.parametrize(
    ("hits", "visible", "exact"),
    [
        (2, passed(VISIBILITY), passed(WARM_LOOKUP)),
        (
            1,
            failed(
                VISIBILITY,
                "seq=3: stored chunks never became visible: warm LOOKUP hit 1/2 chunks, expected "
                "2/2 after 9 lookups in 2003.5 ms; the STORE was dropped, or the server's L1 has "
                "no room (it answers True then too: see its /status)",
            ),
            failed(WARM_LOOKUP, "seq=3: warm LOOKUP hit 1/2 chunks, expected 2/2"),
        ),
        (
            3,
            passed(VISIBILITY),
            failed(WARM_LOOKUP, "seq=3: warm LOOKUP hit 3/2 chunks, expected 2/2"),
        ),
    ],
)
def test_warm_lookups(with_lookup: MakeLookup, hits: int, visible: Finding, exact: Finding) -> None:
    record = with_lookup(
        Pass.WARM, hits=hits, attempts=9, stored_ns=500_000, ended_ns=2_004_000_000
    )
    assert visibility(record) == [visible]
    assert warm_lookup(record) == [exact]


def test_warm_lookups_without_an_answer(
    with_lookup: MakeLookup, good_sequence: GoodSequence
) -> None:
    record = with_lookup(Pass.WARM, **NO_ANSWER)
    reason = "LOOKUP: no answer within 10 s"
    assert visibility(record) == [unproven(VISIBILITY, f"seq=3: the warm LOOKUP {reason}")]
    assert warm_lookup(record) == [unproven(WARM_LOOKUP, f"seq=3: warm LOOKUP: {reason}")]
    record = without(good_sequence(), Pass.WARM)
    text = "seq=3: the warm LOOKUP did not happen"
    assert visibility(record) == [not_looked_at(VISIBILITY, text)]
    assert warm_lookup(record) == [not_looked_at(WARM_LOOKUP, text)]


def test_expect_warm_has_no_warm_pass(good_sequence: GoodSequence) -> None:
    record = good_sequence(expect_warm=True)
    assert visibility(record) == []
    assert warm_lookup(record) == []


def judge_all(record: SequenceRecord) -> list[Finding]:
    return judge(record, JUDGES)


PER_SEQUENCE = {
    COLD_LOOKUP: 1,
    STORE: 2,
    VISIBILITY: 1,
    WARM_LOOKUP: 1,
    RETRIEVE: 2,
    CONTENT: 2,
    SOURCE: 2,
    CANARIES: 2,
    DROPPED: 1,
    DIGESTS: 4,
    SESSIONS: 1,
}


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({}, {}),
        ({"mla": True}, {STORE: 1, SOURCE: 1, DIGESTS: 3}),
        ({"cross_check": False}, {DIGESTS: 0}),
        (
            {"probes": frozenset(PROBES)},
            {PARTIAL: 2, ISOLATION: 2, BOUNDS: 1},
        ),
        ({"overwritten": True}, {DIGESTS: 2}),
        (
            {"expect_warm": True},
            {
                STORE: 0,
                DROPPED: 0,
                VISIBILITY: 0,
                WARM_LOOKUP: 0,
                SOURCE: 0,
                DIGESTS: 2,
            },
        ),
    ],
)
def test_a_flawless_history(
    good_sequence: GoodSequence, options: dict[str, Any], changes: dict[Check, int]
) -> None:
    findings = judge_all(good_sequence(**options))
    assert {finding.verdict for finding in findings} == {Verdict.VALID}
    expected = {check: count for check, count in {**PER_SEQUENCE, **changes}.items() if count}
    assert Counter(finding.check for finding in findings) == expected


@pytest.mark.parametrize("expect_warm", [False, True])
def test_without_a_step_nothing_is_proven(good_sequence: GoodSequence, expect_warm: bool) -> None:
    record = replace(good_sequence(expect_warm=expect_warm, probes=frozenset(PROBES)), steps=())
    findings = judge_all(record)
    assert {finding.verdict for finding in findings} == {Verdict.UNKNOWN}
    assert all(finding.text.startswith("seq=3") for finding in findings)


def test_no_single_step_can_be_missing(good_sequence: GoodSequence) -> None:
    """Whatever is not in the history is noticed, but for one of the sessions."""
    record = good_sequence(probes=frozenset(PROBES))
    for index, step in enumerate(record.steps):
        rest = (*record.steps[:index], *record.steps[index + 1 :])
        verdict = worst(judge_all(replace(record, steps=rest)))
        is_end = type(step).__name__ == "EndRecord"
        assert verdict is (Verdict.VALID if is_end else Verdict.UNKNOWN), step

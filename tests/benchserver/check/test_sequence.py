"""Whole histories: a flawless one passes everything; without any step nothing is proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from benchserver.check.sequence import judge_sequence
from benchserver.check.verdict import Check, Verdict, worst
from benchserver.history import SequenceRecord
from benchserver.load.probes import Probe

GoodSequence = Callable[..., SequenceRecord]

PER_SEQUENCE = {
    Check.COLD_LOOKUP: 1,
    Check.STORE: 2,
    Check.VISIBILITY: 1,
    Check.WARM_LOOKUP: 1,
    Check.RETRIEVE: 2,
    Check.CONTENT: 2,
    Check.SOURCE: 2,
    Check.CANARIES: 2,
    Check.DIGESTS: 4,
    Check.SESSIONS: 1,
}


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({}, {}),
        ({"mla": True}, {Check.STORE: 1, Check.SOURCE: 1, Check.DIGESTS: 3}),
        ({"cross_check": False}, {Check.DIGESTS: 0}),
        (
            {"probes": frozenset(Probe)},
            {Check.PARTIAL: 2, Check.ISOLATION: 2, Check.BOUNDS: 1},
        ),
        ({"overwritten": True}, {Check.DIGESTS: 2}),
        (
            {"expect_warm": True},
            {
                Check.STORE: 0,
                Check.VISIBILITY: 0,
                Check.WARM_LOOKUP: 0,
                Check.SOURCE: 0,
                Check.DIGESTS: 2,
            },
        ),
    ],
)
def test_a_flawless_history(
    good_sequence: GoodSequence, options: dict[str, Any], changes: dict[Check, int]
) -> None:
    findings = judge_sequence(good_sequence(**options))
    assert {finding.verdict for finding in findings} == {Verdict.VALID}
    expected = {check: count for check, count in {**PER_SEQUENCE, **changes}.items() if count}
    assert Counter(finding.check for finding in findings) == expected


@pytest.mark.parametrize("expect_warm", [False, True])
def test_without_a_step_nothing_is_proven(good_sequence: GoodSequence, expect_warm: bool) -> None:
    record = replace(good_sequence(expect_warm=expect_warm, probes=frozenset(Probe)), steps=())
    findings = judge_sequence(record)
    assert {finding.verdict for finding in findings} == {Verdict.UNKNOWN}
    assert all(finding.text.startswith("seq=3") for finding in findings)


def test_no_single_step_can_be_missing(good_sequence: GoodSequence) -> None:
    """Whatever is not in the history is noticed, but for one of the sessions."""
    record = good_sequence(probes=frozenset(Probe))
    for index, step in enumerate(record.steps):
        rest = (*record.steps[:index], *record.steps[index + 1 :])
        verdict = worst(judge_sequence(replace(record, steps=rest)))
        is_end = type(step).__name__ == "EndRecord"
        assert verdict is (Verdict.VALID if is_end else Verdict.UNKNOWN), step

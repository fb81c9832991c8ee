"""LOOKUP judged: cold, warm, visible in time; good, bad and unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from benchserver.check.lookups import cold_lookup, visibility, warm_lookup
from benchserver.check.verdict import Check, Finding, failed, not_looked_at, passed, unproven
from benchserver.history import LookupRecord, Outcome, Pass, SequenceRecord

GoodSequence = Callable[..., SequenceRecord]
MakeLookup = Callable[..., SequenceRecord]


@pytest.fixture
def with_lookup(good_sequence: GoodSequence) -> MakeLookup:
    """Return a maker of a good history with one pass's lookup changed; two chunks."""

    def make(which: Pass, *, expect_warm: bool = False, **changes: Any) -> SequenceRecord:
        record = good_sequence(expect_warm=expect_warm)
        steps = tuple(
            replace(step, **changes)
            if isinstance(step, LookupRecord) and step.which is which
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
        if not (isinstance(step, LookupRecord) and step.which is which)
    )
    return replace(record, steps=steps)


NO_ANSWER = {"outcome": Outcome.UNKNOWN, "hits": 0, "reason": "LOOKUP: no answer within 10 s"}


@pytest.mark.parametrize("expect_warm", [False, True])
def test_cold_lookups_that_are_right(good_sequence: GoodSequence, expect_warm: bool) -> None:
    assert cold_lookup(good_sequence(expect_warm=expect_warm)) == [passed(Check.COLD_LOOKUP)]


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
    assert cold_lookup(record) == [failed(Check.COLD_LOOKUP, f"seq=3: cold LOOKUP {text}")]


def test_cold_lookups_without_an_answer(
    with_lookup: MakeLookup, good_sequence: GoodSequence
) -> None:
    assert cold_lookup(with_lookup(Pass.COLD, **NO_ANSWER)) == [
        unproven(Check.COLD_LOOKUP, "seq=3: cold LOOKUP: LOOKUP: no answer within 10 s")
    ]
    assert cold_lookup(without(good_sequence(), Pass.COLD)) == [
        not_looked_at(Check.COLD_LOOKUP, "seq=3: the cold LOOKUP did not happen")
    ]


@pytest.mark.parametrize(
    ("hits", "visible", "exact"),
    [
        (2, passed(Check.VISIBILITY), passed(Check.WARM_LOOKUP)),
        (
            1,
            failed(
                Check.VISIBILITY,
                "seq=3: stored chunks never became visible: warm LOOKUP hit 1/2 chunks, expected "
                "2/2 after 9 lookups in 2003.5 ms; the STORE was dropped, or the server's L1 has "
                "no room (it answers True then too: see its /status)",
            ),
            failed(Check.WARM_LOOKUP, "seq=3: warm LOOKUP hit 1/2 chunks, expected 2/2"),
        ),
        (
            3,
            passed(Check.VISIBILITY),
            failed(Check.WARM_LOOKUP, "seq=3: warm LOOKUP hit 3/2 chunks, expected 2/2"),
        ),
    ],
)
def test_warm_lookups(with_lookup: MakeLookup, hits: int, visible: Finding, exact: Finding) -> None:
    record = with_lookup(Pass.WARM, hits=hits, attempts=9, lag_ns=2_003_500_000)
    assert visibility(record) == [visible]
    assert warm_lookup(record) == [exact]


def test_warm_lookups_without_an_answer(
    with_lookup: MakeLookup, good_sequence: GoodSequence
) -> None:
    record = with_lookup(Pass.WARM, **NO_ANSWER)
    reason = "LOOKUP: no answer within 10 s"
    assert visibility(record) == [unproven(Check.VISIBILITY, f"seq=3: the warm LOOKUP {reason}")]
    assert warm_lookup(record) == [unproven(Check.WARM_LOOKUP, f"seq=3: warm LOOKUP: {reason}")]
    record = without(good_sequence(), Pass.WARM)
    text = "seq=3: the warm LOOKUP did not happen"
    assert visibility(record) == [not_looked_at(Check.VISIBILITY, text)]
    assert warm_lookup(record) == [not_looked_at(Check.WARM_LOOKUP, text)]


def test_expect_warm_has_no_warm_pass(good_sequence: GoodSequence) -> None:
    record = good_sequence(expect_warm=True)
    assert visibility(record) == []
    assert warm_lookup(record) == []

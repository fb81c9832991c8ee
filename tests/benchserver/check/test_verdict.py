"""How judgements add up, and that a ledger stays small."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.check.verdict import (
    MAX_TEXTS,
    MEANINGS,
    Check,
    Finding,
    Ledger,
    Tally,
    Verdict,
    failed,
    passed,
    unproven,
    worst,
)

GOOD = passed(Check.STORE)
BAD = failed(Check.STORE, "bad")
OPEN = unproven(Check.STORE, "open")


def test_findings() -> None:
    assert Finding(check=Check.STORE, verdict=Verdict.VALID, text="") == GOOD
    assert Finding(check=Check.STORE, verdict=Verdict.INVALID, text="bad") == BAD
    assert Finding(check=Check.STORE, verdict=Verdict.UNKNOWN, text="open") == OPEN


def test_every_check_has_a_meaning_and_its_own_name() -> None:
    assert set(MEANINGS) == set(Check)
    assert len({check.value for check in Check}) == len(Check)


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [
        ([], Verdict.UNKNOWN),
        ([GOOD], Verdict.VALID),
        ([GOOD, GOOD], Verdict.VALID),
        ([GOOD, OPEN], Verdict.UNKNOWN),
        ([OPEN, BAD, GOOD], Verdict.INVALID),
    ],
)
def test_the_worst_holds(findings: list[Finding], verdict: Verdict) -> None:
    assert worst(findings) is verdict


@pytest.mark.parametrize(
    ("good", "bad", "unclear", "skipped"),
    list(itertools.product((0, 3), (0, 1), (0, 1), ("", "why"))),
)
def test_the_verdict_of_one_check(good: int, bad: int, unclear: int, skipped: str) -> None:
    tally = Tally(passed=good, failed=bad, unproven=unclear, skipped=skipped)
    if bad:
        assert tally.verdict is Verdict.INVALID
    elif unclear:
        assert tally.verdict is Verdict.UNKNOWN
    elif good or skipped:
        assert tally.verdict is Verdict.VALID
    else:
        # A check that never ran proves nothing.
        assert tally.verdict is Verdict.UNKNOWN


def full_ledger() -> Ledger:
    ledger = Ledger()
    ledger.add(passed(check) for check in Check)
    return ledger


def test_a_run_is_valid_only_if_every_check_is() -> None:
    assert Ledger().verdict() is Verdict.UNKNOWN
    assert full_ledger().verdict() is Verdict.VALID
    for check in Check:
        ledger = Ledger()
        ledger.add(passed(other) for other in Check if other is not check)
        assert ledger.verdict() is Verdict.UNKNOWN
        ledger.skip(check, "not asked for")
        assert ledger.verdict() is Verdict.VALID
        ledger.add([unproven(check, "x")])
        assert ledger.verdict() is Verdict.UNKNOWN
        ledger.add([failed(check, "x"), *map(passed, Check)])
        assert ledger.verdict() is Verdict.INVALID


@given(st.lists(st.sampled_from([GOOD, BAD, OPEN]), max_size=80))
def test_a_ledger_counts_all_and_keeps_the_first_texts(findings: list[Finding]) -> None:
    ledger = Ledger()
    ledger.add(findings[:10])
    ledger.add(iter(findings[10:]))
    tally = ledger.tallies[Check.STORE]
    counts = (tally.passed, tally.failed, tally.unproven)
    assert counts == (findings.count(GOOD), findings.count(BAD), findings.count(OPEN))
    assert tally.texts == [f.text for f in findings if f is not GOOD][:MAX_TEXTS]


def test_a_week_of_failures_takes_no_more_memory() -> None:
    ledger = Ledger()
    for number in range(10_000):
        ledger.add([failed(Check.CONTENT, f"failure {number}")])
    tally = ledger.tallies[Check.CONTENT]
    assert tally.failed == 10_000
    assert tally.texts == [f"failure {number}" for number in range(20)]

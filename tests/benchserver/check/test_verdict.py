"""How judgements add up, and that a ledger stays small."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.check.content import CONTENT
from benchserver.check.transfers import STORE
from benchserver.check.verdict import (
    MAX_TEXTS,
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

GOOD = passed(STORE)
BAD = failed(STORE, "bad")
OPEN = unproven(STORE, "open")


def test_findings() -> None:
    assert Finding(check=STORE, verdict=Verdict.VALID, text="") == GOOD
    assert Finding(check=STORE, verdict=Verdict.INVALID, text="bad") == BAD
    assert Finding(check=STORE, verdict=Verdict.UNKNOWN, text="open") == OPEN


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


CHECKS = (STORE, CONTENT, Check("other", "something else holds"))


def full_ledger() -> Ledger:
    ledger = Ledger(CHECKS)
    ledger.add(passed(check) for check in CHECKS)
    return ledger


def test_a_run_is_valid_only_if_every_check_is() -> None:
    assert Ledger(CHECKS).verdict() is Verdict.UNKNOWN
    assert full_ledger().verdict() is Verdict.VALID
    for check in CHECKS:
        ledger = Ledger(CHECKS)
        ledger.add(passed(other) for other in CHECKS if other is not check)
        assert ledger.verdict() is Verdict.UNKNOWN
        ledger.skip(check, "not asked for")
        assert ledger.verdict() is Verdict.VALID
        ledger.add([unproven(check, "x")])
        assert ledger.verdict() is Verdict.UNKNOWN
        ledger.add([failed(check, "x"), *map(passed, CHECKS)])
        assert ledger.verdict() is Verdict.INVALID


@given(st.lists(st.sampled_from([GOOD, BAD, OPEN]), max_size=80))
def test_a_ledger_counts_all_and_keeps_the_first_texts(findings: list[Finding]) -> None:
    ledger = Ledger(CHECKS)
    ledger.add(findings[:10])
    ledger.add(iter(findings[10:]))
    tally = ledger.tallies[STORE]
    counts = (tally.passed, tally.failed, tally.unproven)
    assert counts == (findings.count(GOOD), findings.count(BAD), findings.count(OPEN))
    assert tally.texts == [f.text for f in findings if f is not GOOD][:MAX_TEXTS]


def test_a_week_of_failures_takes_no_more_memory() -> None:
    ledger = Ledger(CHECKS)
    for number in range(10_000):
        ledger.add([failed(CONTENT, f"failure {number}")])
    tally = ledger.tallies[CONTENT]
    assert tally.failed == 10_000
    assert tally.texts == [f"failure {number}" for number in range(20)]


def test_a_check_that_no_scenario_brought_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        Ledger([STORE]).add([passed(CONTENT)])


def test_checks_are_told_in_the_order_in_which_they_were_brought() -> None:
    assert [check.name for check in Ledger([CONTENT, STORE]).tallies] == ["content", "store"]

"""Judging: each check by itself, and what is made of one that raises."""

from __future__ import annotations

from dataclasses import dataclass

from benchserver.check.judging import Judge, evaluated, judge
from benchserver.check.verdict import Check, Finding, Verdict, failed, passed

FIRST = Check("first", "the first holds")
BROKEN = Check("broken", "never looked at")
LAST = Check("last", "the last holds")


@dataclass(frozen=True)
class Unit:
    """A history of nothing but its label."""

    label: str = "unit=3"


def good(record: Unit) -> list[Finding]:
    return [passed(FIRST), passed(FIRST)]


def bad(record: Unit) -> list[Finding]:
    return [failed(LAST, f"{record.label}: bad")]


def broken(record: Unit) -> list[Finding]:
    raise KeyError("rank\n7")


def silent_about_it(record: Unit) -> list[Finding]:
    raise AssertionError


def test_every_check_is_asked_in_its_order() -> None:
    judges: list[Judge[Unit]] = [(LAST, bad), (FIRST, good)]
    assert judge(Unit(), judges) == [failed(LAST, "unit=3: bad"), passed(FIRST), passed(FIRST)]
    assert judge(Unit(), []) == []


def test_a_check_that_raises_is_unknown_with_its_text_and_the_others_are_asked() -> None:
    judges: list[Judge[Unit]] = [(FIRST, good), (BROKEN, broken), (LAST, bad)]
    findings = judge(Unit(), judges)
    assert [finding.check for finding in findings] == [FIRST, FIRST, BROKEN, LAST]
    assert findings[2].verdict is Verdict.UNKNOWN
    line = broken.__code__.co_firstlineno + 1
    assert findings[2].text == (
        f"unit=3: the check itself failed, KeyError: 'rank\\n7' at check/test_judging.py:{line}; "
        "that is a fault of bench-server"
    )


def test_an_error_without_words_is_told_by_its_name() -> None:
    (finding,) = judge(Unit(), [(BROKEN, silent_about_it)])
    assert "the check itself failed, AssertionError at check/test_judging.py:" in finding.text


def test_one_look_that_raises_is_unknown_at_its_place() -> None:
    assert evaluated(FIRST, "rank=0", lambda: passed(FIRST)) == passed(FIRST)

    def fails() -> Finding:
        raise ZeroDivisionError("division by zero")

    finding = evaluated(BROKEN, "rank=0", fails)
    assert (finding.check, finding.verdict) == (BROKEN, Verdict.UNKNOWN)
    assert finding.text.startswith(
        "rank=0: the check itself failed, ZeroDivisionError: division by zero at "
    )

"""What it means for a run that something grows, or that nobody can tell."""

from __future__ import annotations

import pytest

from benchserver.check.growth import GROWTH, judge_growth
from benchserver.check.verdict import Verdict


@pytest.mark.parametrize("owed", [False, True])
def test_what_grows_fails_the_run_by_name(owed: bool) -> None:
    first, second = judge_growth(
        grown=["memory grows by 9", "locks grow by 3"], flat=2, untold="x", unseen="y", owed=owed
    )
    assert (first.check, first.verdict, second.verdict) == (
        GROWTH,
        Verdict.INVALID,
        Verdict.INVALID,
    )
    assert first.text.startswith("memory grows by 9; see docs/soak.md")


@pytest.mark.parametrize("owed", [False, True])
def test_what_is_flat_is_proven_and_what_nobody_sees_takes_nothing_away(owed: bool) -> None:
    (found,) = judge_growth(grown=[], flat=2, untold="", unseen="far away", owed=owed)
    assert found.verdict is Verdict.VALID


def test_a_soak_that_cannot_tell_is_unproven() -> None:
    (found,) = judge_growth(grown=[], flat=2, untold="memory: soon", unseen="", owed=True)
    assert (found.verdict, found.text) == (Verdict.UNKNOWN, "memory: soon")
    (found,) = judge_growth(grown=[], flat=0, untold="", unseen="far away", owed=True)
    assert (found.verdict, found.text) == (Verdict.UNKNOWN, "far away")


def test_any_other_run_that_cannot_tell_is_not_judged_by_it() -> None:
    assert judge_growth(grown=[], flat=0, untold="memory: soon", unseen="", owed=False) == []
    (found,) = judge_growth(grown=[], flat=1, untold="memory: soon", unseen="", owed=False)
    assert found.verdict is Verdict.VALID

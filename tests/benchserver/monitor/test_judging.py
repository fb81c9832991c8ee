"""What growth means for a run."""

from __future__ import annotations

import json

import pytest

from benchserver.check.growth import GROWTH
from benchserver.check.verdict import Ledger, Verdict
from benchserver.config.watch import GROWTH_BOUNDS
from benchserver.line import BAD
from benchserver.monitor.judging import growth_section, judge_resources
from benchserver.monitor.resources import Resources


def judged(resources: Resources, *, owed: bool = False) -> Ledger:
    ledger = Ledger([GROWTH])
    judge_resources(resources.now(), ledger, owed=owed)
    return ledger


def seen(lasts_s: int, *names: str, leaks: str = "") -> Resources:
    resources = Resources(GROWTH_BOUNDS)
    for at_s in range(0, lasts_s, 5):
        resources.see(at_s, {name: at_s if name == leaks else 7 for name in names})
    return resources


def test_a_short_run_is_not_judged_by_growth_and_a_short_soak_is_unproven() -> None:
    ledger = judged(seen(20, *GROWTH_BOUNDS))
    assert ledger.verdict() is Verdict.VALID
    assert ledger.not_evaluated() == {"growth": "it takes 150 s or more to tell"}
    ledger = judged(seen(20, *GROWTH_BOUNDS), owed=True)
    assert ledger.verdict() is Verdict.UNKNOWN
    assert ledger.tallies[GROWTH].texts == ["it takes 150 s or more to tell"]


def test_a_run_that_nobody_looked_at_proves_nothing() -> None:
    assert judged(Resources(GROWTH_BOUNDS), owed=True).verdict() is Verdict.UNKNOWN


@pytest.mark.parametrize("owed", [False, True])
def test_what_is_not_measured_is_named(owed: bool) -> None:
    resources = seen(300, "our memory", "our threads")
    resources.unseen(["server memory", "server threads"], "it is far away")
    ledger = judged(resources, owed=owed)
    assert ledger.verdict() is Verdict.VALID
    assert "server memory, server threads: it is far away" in ledger.tallies[GROWTH].skipped


def test_what_grows_fails_the_run() -> None:
    ledger = judged(seen(300, *GROWTH_BOUNDS, leaks="server read locks"))
    assert ledger.verdict() is Verdict.INVALID
    (text,) = ledger.tallies[GROWTH].texts
    assert text.startswith("server read locks grow by 3600 an hour (3600 to 3600), bound 6 an hour")


def test_its_section_has_a_line_for_each_slope_and_all_samples() -> None:
    section = growth_section(seen(300, "our memory", "server sessions", leaks="server sessions"))
    assert [line.text for line in section.lines] == [
        "flat            our memory: 0 MB/h (0 to 0), bound 8 MB/h",
        "grows           server sessions grow by 3600 an hour (3600 to 3600), bound 6 an hour",
    ]
    assert section.lines[1].style == BAD
    documents = {one["name"]: one for one in json.loads(json.dumps(section.document))["resources"]}
    assert list(documents) == list(GROWTH_BOUNDS)
    assert documents["server sessions"]["samples"][:2] == [[0, 0], [5, 5]]
    assert documents["server sessions"]["slope_per_hour"] == pytest.approx(3600)
    assert documents["server threads"]["verdict"] == "not measured"


def test_a_short_run_has_no_lines() -> None:
    assert growth_section(seen(20, *GROWTH_BOUNDS)).lines == ()

"""Health: what /status says is judged, and what explains a failure stands in its line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchserver.check.content import CONTENT
from benchserver.check.health import HEALTH, causes, explain, judge_health
from benchserver.check.transfers import RETRIEVE
from benchserver.check.verdict import Check, Finding, failed, passed, unproven
from benchserver.scenarios.baseline.checks import CHECKS, COLD_LOOKUP, VISIBILITY, WARM_LOOKUP
from protocol.health import Health
from protocol.httpapi import ServerStatus

OURS = frozenset({7, 8})
STATUS = ServerStatus(
    chunk_size=256,
    active_sessions=0,
    read_locked=0,
    write_locked=0,
    handle_instances=frozenset({7}),
    engine_instances=frozenset({8, 9}),
    l1_bytes=1000,
    l1_used=899,
    l1_watermark=0.8,
    health=Health(said=3, bad=()),
)
ILL = Health(said=9, bad=("a (is_healthy false)", "b", "c", "d", "e"))


def test_well_ill_and_silent() -> None:
    assert judge_health(Health(said=1), "before") == passed(HEALTH)
    assert judge_health(Health(), "after") == unproven(
        HEALTH, "after the run, /status says nothing about its health"
    )
    assert judge_health(ILL, "before") == failed(
        HEALTH,
        "before the run, the server is not well, by its own /status: a (is_healthy false), b, c, "
        "and 2 more; see its log, and restart it",
    )


@pytest.mark.parametrize(
    ("change", "failures", "found"),
    [
        ({}, {}, ()),
        ({}, {"lmcache_mp_l1_allocation_failure": 0}, ()),
        (
            {},
            {"lmcache_mp_l1_allocation_failure": 2, "bench_embedded_refused_reservations": 1},
            (
                "2 allocations of chunks in L1 failed since the run began (/metrics)",
                "1 stores found no room in L1 since the run began (/metrics)",
            ),
        ),
        (
            {"engine_instances": frozenset()},
            {},
            ("our registration of instance 8 is gone: the server gave it up, or was restarted",),
        ),
        (
            {"l1_used": 900},
            {},
            ("L1 is full, 900 of 1000 bytes; it is to be emptied from 0.8 on",),
        ),
        ({"l1_used": 1000, "l1_watermark": 0.0}, {}, ("L1 is full, 1000 of 1000 bytes",)),
        ({"l1_bytes": 0}, {}, ()),
        ({"health": ILL}, {}, ("not well: a (is_healthy false), b, c, and 2 more",)),
    ],
)
def test_causes(change: dict[str, Any], failures: dict[str, int], found: tuple[str, ...]) -> None:
    assert causes(replace(STATUS, **change), OURS, failures) == found


def test_the_first_failure_that_it_may_explain_says_why() -> None:
    findings = [
        passed(COLD_LOOKUP),
        failed(CONTENT, "wrong bytes"),
        unproven(RETRIEVE, "did not happen"),
        failed(VISIBILITY, "not visible"),
        failed(WARM_LOOKUP, "hit 0/2"),
    ]
    expected = list(findings)
    expected[3] = failed(VISIBILITY, "not visible; the server's /status says: full; dead")
    assert explain(findings, ("full", "dead")) == expected
    assert explain(findings, ()) == findings


@pytest.mark.parametrize("check", [check for check in CHECKS if check.explained])
def test_what_may_be_explained(check: Check) -> None:
    (finding,) = explain([failed(check, "x")], ("full",))
    assert finding == Finding(
        check=check, verdict=finding.verdict, text="x; the server's /status says: full"
    )


def test_no_other_check_is() -> None:
    other = Check("other", "fails for another reason")
    assert explain([failed(other, "x")], ("full",)) == [failed(other, "x")]
    assert {check.name for check in CHECKS if check.explained} == {
        "store",
        "visibility",
        "warm_lookup",
        "cold_lookup",
        "retrieve",
        "partial",
    }

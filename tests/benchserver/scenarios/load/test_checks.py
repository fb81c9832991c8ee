"""Good, bad and unknown requests."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.check.content import CANARIES, CONTENT
from benchserver.check.digests import DIGESTS
from benchserver.check.dropped import DROPPED
from benchserver.check.judging import judge
from benchserver.check.promises import PROMISED
from benchserver.check.sessions import SESSIONS
from benchserver.check.transfers import STORE
from benchserver.check.verdict import Check, Finding, Verdict
from benchserver.history import DigestRecord, Outcome
from benchserver.kv.evidence import Evidence, EvidenceKind
from benchserver.scenarios.load.checks import CHECKS, HITS, JUDGES
from benchserver.scenarios.load.records import Missing
from tests.benchserver.scenarios.load.made import ended, lookup, moved, record, seen

WRONG = Evidence(kind=EvidenceKind.MISMATCH, pages=4, bad_pages=1, checked_bytes=4096)
UNTOUCHED = Evidence(kind=EvidenceKind.UNTOUCHED, pages=4, bad_pages=4, checked_bytes=4096)


def digested(server: tuple[str, ...] = ("a", "b"), **changes: Any) -> DigestRecord:
    fields = {"outcome": Outcome.OK, "ours": ("a", "b"), "server": server, **changes}
    return DigestRecord(rank=0, leg="destination", **fields)


def not_good(**changes: Any) -> list[Finding]:
    return [f for f in judge(record(**changes), JUDGES) if f.verdict is not Verdict.VALID]


def test_all_is_well() -> None:
    findings = judge(record(cross_check=True, digests=(digested(),)), JUDGES)
    assert [finding.check for finding in findings] == [c for c in CHECKS if c is not DROPPED]
    assert not not_good(cross_check=True, digests=(digested(),))
    assert not not_good(), "digests that nobody asked for are not missed"


def test_a_request_that_read_nothing_is_not_judged_by_what_it_read() -> None:
    findings = judge(record(lookup=lookup(0), retrieves=(), evidence=()), JUDGES)
    assert [finding.check for finding in findings] == [HITS, STORE, SESSIONS]


@pytest.mark.parametrize(
    "why", [Missing.NOT_VISIBLE, Missing.DROPPED, Missing.EVICTED, Missing.UNLOADED]
)
def test_what_is_missing_and_explained_passes(why: Missing) -> None:
    assert not not_good(missing=why)


@pytest.mark.parametrize(
    ("changes", "check", "verdict", "text"),
    [
        (
            {"cross_check": True, "digests": (digested(("a", "c")),)},
            DIGESTS,
            Verdict.INVALID,
            "request=7 client=1 rank=0: CHECKSUM MISMATCH, leg destination, chunk 1: ours b, the "
            "server's c: the server sees other bytes than it should have restored, or its digest "
            "API is wrong",
        ),
        (
            {
                "cross_check": True,
                "digests": (digested((), outcome=Outcome.UNKNOWN, reason="HTTP 500"),),
            },
            DIGESTS,
            Verdict.UNKNOWN,
            "request=7 client=1 rank=0: digests of the destination blocks: HTTP 500",
        ),
        (
            {"cross_check": True},
            DIGESTS,
            Verdict.UNKNOWN,
            "request=7 client=1 rank=0: no digests of the destination blocks were taken",
        ),
        (
            {"missing": Missing.UNEXPLAINED, "lookup": lookup(1, expected=3)},
            HITS,
            Verdict.INVALID,
            "request=7 client=1: LOOKUP hit 1/4 chunks, expected 3/4: STORE of chunk 1 was "
            "acknowledged, and nothing that the server counts explains that it is gone",
        ),
        (
            {"missing": Missing.UNTOLD, "lookup": lookup(1, expected=3)},
            HITS,
            Verdict.UNKNOWN,
            "request=7 client=1: LOOKUP hit 1/4 chunks, expected 3/4: STORE of chunk 1 was "
            "acknowledged, and the server does not say whether it gave it up",
        ),
        (
            {"lookup": lookup(0, outcome=Outcome.UNKNOWN, reason="no answer")},
            HITS,
            Verdict.UNKNOWN,
            "request=7 client=1: LOOKUP: no answer",
        ),
        (
            {
                "retrieves": (moved("RETRIEVE", outcome=Outcome.FAIL, reason="said no"),),
                "told": "3 chunks evicted since the run began",
            },
            PROMISED,
            Verdict.INVALID,
            "request=7 client=1 rank=0: LOOKUP promised 2 chunks, RETRIEVE failed: said no; the "
            "server says: 3 chunks evicted since the run began",
        ),
        (
            {"stores": (moved("STORE", rank=1, outcome=Outcome.UNKNOWN, reason="late"),)},
            STORE,
            Verdict.UNKNOWN,
            "request=7 client=1 rank=1: STORE: late",
        ),
        (
            {"evidence": (seen(WRONG),)},
            CONTENT,
            Verdict.INVALID,
            "request=7 client=1 rank=0: CHECKSUM MISMATCH, 1 of 4 pages wrong: no page recorded",
        ),
        (
            {"evidence": (seen(UNTOUCHED),)},
            CONTENT,
            Verdict.INVALID,
            "request=7 client=1 rank=0: CHECKSUM MISMATCH, 4 of 4 pages untouched by RETRIEVE: no "
            "page recorded",
        ),
        (
            {"evidence": (seen(canaries=WRONG),)},
            CANARIES,
            Verdict.INVALID,
            "request=7 client=1 rank=0: CANARY OVERWRITTEN, 1 of 4 pages wrong: no page recorded",
        ),
        (
            {"ends": (ended(Outcome.UNKNOWN, "no answer"),)},
            SESSIONS,
            Verdict.UNKNOWN,
            "request=7 client=1: END_SESSION: no answer",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    changes: dict[str, Any], check: Check, verdict: Verdict, text: str
) -> None:
    (finding,) = not_good(**changes)
    assert (finding.check, finding.verdict, finding.text) == (check, verdict, text)

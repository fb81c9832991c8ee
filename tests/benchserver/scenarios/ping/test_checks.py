"""What a ping is judged by: good, bad and missing answers."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.check.judging import judge
from benchserver.check.verdict import Verdict
from benchserver.history import Outcome
from benchserver.scenarios.ping.checks import ANSWERS, CHECKS, CHUNK_SIZE, JUDGES, PONG
from benchserver.scenarios.ping.records import RoundRecord, TripRecord


def trip(name: str = "GET_CHUNK_SIZE", **changes: Any) -> TripRecord:
    fields: dict[str, Any] = {"outcome": Outcome.OK, "began_ns": 5, "ended_ns": 9, "answer": 256}
    return TripRecord(name=name, **{**fields, **changes})


def round_of(*trips: TripRecord) -> RoundRecord:
    return RoundRecord(number=3, chunk_tokens=256, trips=trips)


PING = trip("PING", answer=1)


def test_a_good_round_passes_every_check() -> None:
    findings = judge(round_of(trip(), PING), JUDGES)
    assert [f.check for f in findings] == [ANSWERS, ANSWERS, CHUNK_SIZE, PONG]
    assert {f.verdict for f in findings} == {Verdict.VALID}
    assert CHECKS == (ANSWERS, CHUNK_SIZE, PONG)


@pytest.mark.parametrize(
    ("trips", "text"),
    [
        ((trip(answer=128), PING), "ping=3: GET_CHUNK_SIZE answered 128, 256 before"),
        ((trip(), trip("PING", answer=0)), "ping=3: PING answered False, expected True"),
    ],
)
def test_a_wrong_answer_fails(trips: tuple[TripRecord, ...], text: str) -> None:
    bad = [f for f in judge(round_of(*trips), JUDGES) if f.verdict is not Verdict.VALID]
    (finding,) = bad
    assert finding.verdict is Verdict.INVALID
    assert finding.text.startswith(text)


@pytest.mark.parametrize("name", ["GET_CHUNK_SIZE", "PING"])
def test_an_answer_that_is_missing_proves_nothing_and_is_not_judged(name: str) -> None:
    lost = trip(name, outcome=Outcome.UNKNOWN, answer=0, reason="no answer within 1 s")
    (finding,) = judge(round_of(lost), JUDGES)
    assert (finding.check, finding.verdict) == (ANSWERS, Verdict.UNKNOWN)
    assert finding.text == f"ping=3: {name}: no answer within 1 s"

"""A ping as lines, word for word."""

from __future__ import annotations

import pytest

from benchserver.history import Outcome, Step
from benchserver.line import BAD, Line
from benchserver.scenarios.ping.lines import describe
from benchserver.scenarios.ping.records import TripRecord


def trip(name: str, answer: int, reason: str = "") -> TripRecord:
    outcome = Outcome.UNKNOWN if reason else Outcome.OK
    return TripRecord(
        name=name, outcome=outcome, began_ns=0, ended_ns=250_000, answer=answer, reason=reason
    )


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (trip("GET_CHUNK_SIZE", 256), Line("[ping=3] GET_CHUNK_SIZE: 256 tokens (0.25 ms)")),
        (trip("PING", 1), Line("[ping=3] PING:           answered (0.25 ms)")),
        (trip("PING", 0, "lost"), Line("[ping=3] PING:           lost", BAD)),
        (Step(), None),
    ],
)
def test_a_round_trip_is_a_line(step: Step, line: Line | None) -> None:
    assert describe("ping=3", step) == line

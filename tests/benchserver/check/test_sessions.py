"""Sessions judged: good and unknown; an answer to an end says nothing bad."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from benchserver.check.sessions import SESSIONS, sessions
from benchserver.check.verdict import not_looked_at, passed, unproven
from benchserver.history import EndRecord, Outcome, SequenceRecord

GoodSequence = Callable[..., SequenceRecord]


def test_good(good_sequence: GoodSequence) -> None:
    assert sessions(good_sequence()) == [passed(SESSIONS)]


def test_each_end_without_an_answer_is_told(good_sequence: GoodSequence) -> None:
    record = good_sequence()
    lost = [
        EndRecord(
            name=name,
            request_id="bs-1",
            began_ns=0,
            ended_ns=1,
            outcome=Outcome.UNKNOWN,
            reason="no answer",
        )
        for name in ("FREE_LOOKUP_LOCKS", "END_SESSION")
    ]
    assert sessions(replace(record, steps=(*record.steps, *lost))) == [
        unproven(SESSIONS, "seq=3: FREE_LOOKUP_LOCKS of bs-1: no answer"),
        unproven(SESSIONS, "seq=3: END_SESSION of bs-1: no answer"),
    ]


def test_no_session_was_ended(good_sequence: GoodSequence) -> None:
    record = good_sequence()
    steps = tuple(step for step in record.steps if not isinstance(step, EndRecord))
    assert sessions(replace(record, steps=steps)) == [
        not_looked_at(SESSIONS, "seq=3: no session was ended")
    ]

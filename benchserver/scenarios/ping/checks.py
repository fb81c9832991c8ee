"""What a ping is judged by."""

from __future__ import annotations

from benchserver.check.judging import Judge
from benchserver.check.verdict import Check, Finding, failed, passed, unproven
from benchserver.history import Outcome
from benchserver.scenarios.ping.records import RoundRecord, TripRecord
from protocol.ops import Op

ANSWERS = Check("answers", "every request is answered in time")
CHUNK_SIZE = Check("chunk_size", "GET_CHUNK_SIZE answers the same every time")
PONG = Check("pong", "PING answers True")


def answers(record: RoundRecord) -> list[Finding]:
    """Every request of the round has an answer."""
    return [
        passed(ANSWERS)
        if trip.outcome is Outcome.OK
        else unproven(ANSWERS, f"{record.label}: {trip.name}: {trip.reason}")
        for trip in record.trips
    ]


def chunk_size(record: RoundRecord) -> list[Finding]:
    """The chunk size is that of the first contact: a server does not change it while it runs."""
    return [
        passed(CHUNK_SIZE)
        if trip.answer == record.chunk_tokens
        else failed(
            CHUNK_SIZE,
            f"{record.label}: GET_CHUNK_SIZE answered {trip.answer}, {record.chunk_tokens} "
            "before: two servers listen at --rpc-url, or it was restarted",
        )
        for trip in _answered(record, Op.GET_CHUNK_SIZE)
    ]


def pong(record: RoundRecord) -> list[Finding]:
    """A server that is well answers True, whoever asks (0.4.2 to 0.5.7rc2)."""
    return [
        passed(PONG)
        if trip.answer
        else failed(PONG, f"{record.label}: PING answered False, expected True")
        for trip in _answered(record, Op.PING)
    ]


def _answered(record: RoundRecord, op: Op) -> list[TripRecord]:
    return [t for t in record.trips if t.name == op.name and t.outcome is Outcome.OK]


JUDGES: tuple[Judge[RoundRecord], ...] = (
    (ANSWERS, answers),
    (CHUNK_SIZE, chunk_size),
    (PONG, pong),
)
"""What judges a round by which check, in the order of reports."""

CHECKS = tuple(check for check, _ in JUDGES)

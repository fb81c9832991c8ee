"""The clock of a request."""

from __future__ import annotations

from benchserver.clock import NS_PER_MS
from benchserver.history import Outcome
from tests.benchserver.scenarios.load.made import clocking, ended, moved, record


def test_waiting_for_the_server_is_not_our_lag() -> None:
    one = clocking(planned_ns=10, free_ns=30, sent_ns=34, ended_ns=50)
    assert (one.response_ns, one.lag_ns, one.queued_ns) == (
        40 * NS_PER_MS,
        4 * NS_PER_MS,
        20 * NS_PER_MS,
    )
    one = clocking(planned_ns=30, free_ns=10, sent_ns=34, ended_ns=50)
    assert (one.response_ns, one.lag_ns, one.queued_ns) == (20 * NS_PER_MS, 4 * NS_PER_MS, 0)


def test_a_request_says_whether_all_came() -> None:
    assert record().delivered
    assert record().answered
    assert record().label == "request=7 client=1"
    refused = moved("RETRIEVE", outcome=Outcome.FAIL)
    assert not record(retrieves=(moved("RETRIEVE"), refused)).delivered
    assert not record(retrieves=()).delivered
    assert not record(ends=(ended(Outcome.UNKNOWN),)).answered

"""What a load adds up to."""

from __future__ import annotations

from benchserver.check.verdict import Verdict
from benchserver.clock import NS_PER_MS
from benchserver.history import Outcome
from benchserver.load.goal import parse_goal
from benchserver.scenarios.load.records import Missing
from benchserver.scenarios.load.totals import Totals
from tests.benchserver.scenarios.load.made import clocking, lookup, moved, record


def test_requests_chunks_and_bytes_add_up() -> None:
    totals = Totals(begin_ns=0)
    totals.count(record(), Verdict.VALID)
    totals.count(record(lookup=lookup(0), retrieves=(), evidence=()), Verdict.UNKNOWN)
    assert (totals.done, totals.failed, totals.warmup) == (2, 1, 0)
    assert (totals.asked_chunks, totals.hit_chunks, totals.undelivered_chunks) == (8, 2, 0)
    assert totals.asked_tokens == 280
    assert (totals.stored_bytes, totals.retrieved_bytes) == (2000, 1000)
    assert (totals.hits_read, totals.hits_verified) == (1, 1)
    assert totals.last_ns == 9 * NS_PER_MS
    (row,) = totals.timeline.rows()
    assert (row.requests, row.errors, row.moved_bytes) == (2, 0, 3000)


def test_requests_that_keep_the_goal_and_in_which_all_was_well_are_good() -> None:
    totals = Totals(begin_ns=0, goal=parse_goal("response<9ms and store<2ms"))
    totals.count(record(), Verdict.VALID)
    totals.count(record(), Verdict.INVALID)
    slow = moved("STORE", began_ns=0, ended_ns=3 * NS_PER_MS)
    totals.count(record(stores=(slow,)), Verdict.VALID)
    totals.count(record(warmup=True), Verdict.VALID)
    took = record().took_ns
    assert took["response"] <= 9 * NS_PER_MS
    assert took["store"] <= 2 * NS_PER_MS
    assert (totals.done, totals.good) == (3, 1)


def test_a_warm_up_is_counted_aside() -> None:
    totals = Totals(begin_ns=0)
    totals.count(record(warmup=True), Verdict.VALID)
    assert (totals.done, totals.warmup, totals.asked_chunks) == (0, 1, 0)
    assert not totals.timeline.rows()


def test_what_is_missing_and_what_was_found_warm() -> None:
    totals = Totals(begin_ns=0)
    short = record(lookup=lookup(1, expected=3), missing=Missing.NOT_VISIBLE)
    totals.count(short, Verdict.VALID)
    totals.count(record(lookup=lookup(4), possible=1), Verdict.VALID)
    assert totals.missing == {Missing.NOT_VISIBLE: 1}
    assert totals.found_warm_chunks == 3


def test_a_request_without_an_answer_is_an_error_of_its_second() -> None:
    totals = Totals(begin_ns=5 * NS_PER_MS)
    lost = (moved("STORE", outcome=Outcome.UNKNOWN, nbytes=0),)
    totals.count(record(stores=lost, clocking=clocking(ended_ns=1500)), Verdict.UNKNOWN)
    assert [row.errors for row in totals.timeline.rows()] == [0, 1]


def test_what_was_promised_and_not_delivered_is_counted() -> None:
    totals = Totals(begin_ns=0)
    refused = (moved("RETRIEVE"), moved("RETRIEVE", outcome=Outcome.FAIL, chunks=0))
    totals.count(record(retrieves=refused, stores=(), evidence=()), Verdict.INVALID)
    assert totals.undelivered_chunks == 2

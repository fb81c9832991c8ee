"""Promises of LOOKUP against what RETRIEVE delivers, rank by rank."""

from __future__ import annotations

import pytest

from benchserver.check.promises import promised, told_of, undelivered_chunks
from benchserver.check.verdict import Verdict
from benchserver.history import LookupRecord, Outcome, TransferRecord
from protocol.counters import Counters


def lookup(hits: int) -> LookupRecord:
    return LookupRecord(
        outcome=Outcome.OK,
        began_ns=0,
        ended_ns=1,
        which="load",
        hits=hits,
        expected=hits,
        total=9,
    )


def retrieve(rank: int, chunks: int, outcome: Outcome = Outcome.OK) -> TransferRecord:
    return TransferRecord(
        name="RETRIEVE",
        outcome=outcome,
        began_ns=0,
        ended_ns=1,
        rank=rank,
        chunks=chunks,
        total=9,
        nbytes=1,
        replied_ns=1,
        reason="" if outcome is Outcome.OK else "RETRIEVE answered False",
    )


def test_a_kept_promise() -> None:
    steps = [retrieve(0, 3), retrieve(1, 3)]
    found = promised("request=1", lookup(3), steps, "nothing", locks_known=True)
    assert [finding.verdict for finding in found] == [Verdict.VALID] * 2
    assert undelivered_chunks(lookup(3), steps) == 0


@pytest.mark.parametrize(
    ("step", "verdict", "text", "undelivered"),
    [
        (retrieve(1, 2), Verdict.INVALID, "RETRIEVE delivered 2; the server says: why", 1),
        (
            retrieve(1, 0, Outcome.FAIL),
            Verdict.INVALID,
            "RETRIEVE failed: RETRIEVE answered False; the server says: why",
            3,
        ),
        (retrieve(1, 0, Outcome.UNKNOWN), Verdict.UNKNOWN, "RETRIEVE has no answer", 0),
    ],
)
def test_a_broken_promise_is_one_of_its_rank_and_a_silence_is_none(
    step: TransferRecord, verdict: Verdict, text: str, undelivered: int
) -> None:
    steps = [retrieve(0, 3), step]
    first, second = promised("request=1", lookup(3), steps, "why", locks_known=True)
    assert first.verdict is Verdict.VALID
    assert second.verdict is verdict
    assert second.text.startswith("request=1 rank=1: LOOKUP promised 3 chunks, ")
    assert text in second.text
    assert undelivered_chunks(lookup(3), steps) == undelivered


def test_what_another_request_may_have_unlocked_is_not_the_servers_fault() -> None:
    steps = [retrieve(0, 3), retrieve(1, 0, Outcome.FAIL)]
    first, second = promised("request=1", lookup(3), steps, "why", locks_known=False)
    assert (first.verdict, second.verdict) == (Verdict.VALID, Verdict.UNKNOWN)
    assert second.text.endswith("had no answer, and freeing its lock may have freed this one")


@pytest.mark.parametrize(
    ("since", "text"),
    [
        (None, "neither /metrics nor /status answers"),
        (Counters(), "no counter tells of a chunk that was lost"),
        (
            Counters(evicted_chunks=4, unread_chunks=1),
            "4 chunks evicted since the run began; 1 chunks could not be read in L1 since the run "
            "began",
        ),
    ],
)
def test_what_the_server_says_stands_beside_it(since: Counters | None, text: str) -> None:
    assert told_of(since, None) == text

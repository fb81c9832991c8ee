"""The account of dropped chunks: each chunk that a server counts is used once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.check.dropped import DROPPED, DroppedAccount, all_dropped, dropped
from benchserver.check.verdict import Verdict, passed
from benchserver.history import DroppedRecord, LookupRecord, SequenceRecord
from protocol.counters import Counters


def account_with(stored: int, lost: int) -> DroppedAccount:
    account = DroppedAccount(Counters())
    account.stored = stored
    account.explain(lost, Counters(dropped_chunks=lost))
    return account


def test_a_counted_chunk_explains_one_missing_chunk_once() -> None:
    account = DroppedAccount(Counters(dropped_chunks=10))
    now = Counters(dropped_chunks=13)
    assert account.explain(2, now) == 2
    assert account.explain(2, now) == 1
    assert account.explain(2, now) == 0
    assert account.dropped == 3


def test_what_was_evicted_is_an_account_of_its_own() -> None:
    account = DroppedAccount(Counters(evicted_chunks=4))
    now = Counters(evicted_chunks=6, dropped_chunks=1)
    assert (account.explain(2, now), account.explain_evicted(3, now)) == (1, 2)
    assert account.explain_evicted(1, now) == 0
    assert (account.dropped, account.evicted) == (1, 2)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (None, Counters(dropped_chunks=5)),
        (Counters(), None),
        (Counters(dropped_chunks=6), Counters(dropped_chunks=5)),
    ],
)
def test_without_counters_or_behind_a_restart_nothing_is_explained(
    before: Counters | None, now: Counters | None
) -> None:
    assert DroppedAccount(before).explain(1, now) == 0


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_never_more_is_explained_than_was_counted_or_missed(
    steps: list[tuple[int, int]],
) -> None:
    account, counted, missed = DroppedAccount(Counters()), 0, 0
    for dropped_now, missing in steps:
        counted, missed = counted + dropped_now, missed + missing
        assert 0 <= account.explain(missing, Counters(dropped_chunks=counted)) <= missing
        assert account.dropped <= min(counted, missed)


@pytest.mark.parametrize(
    ("stored", "lost", "most", "verdict"),
    [
        (0, 0, 0.0, Verdict.VALID),
        (10, 0, 0.0, Verdict.VALID),
        (10, 1, 0.1, Verdict.VALID),
        (10, 2, 0.1, Verdict.INVALID),
        (10, 10, 1.0, Verdict.VALID),
    ],
)
def test_the_share_of_the_whole_run(stored: int, lost: int, most: float, verdict: Verdict) -> None:
    finding = account_with(stored, lost).finding(most)
    assert finding.verdict is verdict
    if verdict is Verdict.INVALID:
        assert "2 of 10 chunks, a share of 0.2, and --max-dropped is 0.1" in finding.text


def lost(accounted: int, *, allowed: bool) -> DroppedRecord:
    return DroppedRecord(missing=2, accounted=accounted, total=2, allowed=allowed)


@pytest.mark.parametrize(
    ("step", "verdict", "text"),
    [
        (lost(2, allowed=False), Verdict.INVALID, "dropped 2 of 2 chunks"),
        (lost(1, allowed=False), Verdict.INVALID, "--l1-size-gb"),
        (lost(0, allowed=False), Verdict.UNKNOWN, "no counter of the server"),
        (lost(2, allowed=True), Verdict.VALID, ""),
    ],
)
def test_a_sequence_that_misses_chunks(
    good_sequence: Callable[..., SequenceRecord],
    step: DroppedRecord,
    verdict: Verdict,
    text: str,
) -> None:
    record = good_sequence()
    kept = tuple(s for s in record.steps if not (isinstance(s, LookupRecord) and s.hits))
    record = replace(record, steps=(*kept, step))
    (finding,) = dropped(record)
    assert finding.verdict is verdict
    assert text in finding.text
    assert all_dropped(record) == (step.accounted == step.missing)


def test_a_sequence_that_was_found_has_dropped_nothing(
    good_sequence: Callable[..., SequenceRecord],
) -> None:
    assert dropped(good_sequence()) == [passed(DROPPED)]
    assert dropped(good_sequence(expect_warm=True)) == []
    assert not all_dropped(good_sequence())

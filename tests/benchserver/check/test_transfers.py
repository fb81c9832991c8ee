"""STORE and RETRIEVE judged rank by rank; good, bad and unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from benchserver.check.transfers import RETRIEVE, STORE, retrieves, stores
from benchserver.check.verdict import (
    Check,
    Finding,
    Verdict,
    failed,
    not_looked_at,
    passed,
    unproven,
)
from benchserver.history import Outcome, SequenceRecord, TransferRecord

GoodSequence = Callable[..., SequenceRecord]

JUDGES = {"STORE": (stores, STORE), "RETRIEVE": (retrieves, RETRIEVE)}


def changed(record: SequenceRecord, name: str, rank: int, **changes: Any) -> SequenceRecord:
    """Change one transfer of a history; `drop=True` leaves it out."""
    drop = changes.pop("drop", False)
    steps = [
        replace(step, **changes)
        if isinstance(step, TransferRecord) and (step.name, step.rank) == (name, rank)
        else step
        for step in record.steps
        if not (
            drop and isinstance(step, TransferRecord) and (step.name, step.rank) == (name, rank)
        )
    ]
    assert tuple(steps) != record.steps
    return replace(record, steps=tuple(steps))


@pytest.mark.parametrize("name", JUDGES)
def test_good(good_sequence: GoodSequence, name: str) -> None:
    judge, check = JUDGES[name]
    assert judge(good_sequence()) == [passed(check)] * 2


@pytest.mark.parametrize("name", JUDGES)
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"outcome": Outcome.FAIL, "reason": "answered False"}, (failed, ": answered False")),
        ({"outcome": Outcome.UNKNOWN, "reason": "no answer"}, (unproven, ": no answer")),
        ({"drop": True}, (not_looked_at, " did not happen")),
    ],
)
def test_one_rank_that_did_not(
    good_sequence: GoodSequence,
    name: str,
    rank: int,
    changes: dict[str, Any],
    finding: tuple[Callable[[Check, str], Finding], str],
) -> None:
    judge, check = JUDGES[name]
    make, text = finding
    expected = [passed(check), passed(check)]
    expected[rank] = make(check, f"seq=3 rank={rank}: {name}{text}")
    assert judge(changed(good_sequence(), name, rank, **changes)) == expected


@pytest.mark.parametrize("chunks", [0, 1])
def test_chunks_that_did_not_move(good_sequence: GoodSequence, chunks: int) -> None:
    text = f"moved {chunks} of 2 chunks"
    (good, short) = stores(changed(good_sequence(), "STORE", 1, chunks=chunks))
    assert good == passed(STORE)
    assert short == failed(STORE, f"seq=3 rank=1: STORE {text}: the server held the others")
    (short, good) = retrieves(changed(good_sequence(), "RETRIEVE", 0, chunks=chunks))
    assert (short.verdict, text in short.text) == (Verdict.INVALID, True)
    assert good == passed(RETRIEVE)


def test_mla_has_one_writer_and_every_rank_reads(good_sequence: GoodSequence) -> None:
    record = good_sequence(mla=True)
    assert stores(record) == [passed(STORE)]
    assert retrieves(record) == [passed(RETRIEVE)] * 2


def test_expect_warm_stores_nothing(good_sequence: GoodSequence) -> None:
    assert stores(good_sequence(expect_warm=True)) == []

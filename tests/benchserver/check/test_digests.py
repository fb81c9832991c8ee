"""Digests judged: every rank, source and destination; good, bad and unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from benchserver.check.digests import DIGESTS, digests
from benchserver.check.verdict import Finding, failed, not_looked_at, passed, unproven
from benchserver.history import DigestRecord, Outcome, SequenceRecord, Step

GoodSequence = Callable[..., SequenceRecord]

GOOD = passed(DIGESTS)
LEGS = [(0, "source"), (1, "source"), (0, "destination"), (1, "destination")]


def with_digests(record: SequenceRecord, rank: int, leg: str, **changes: Any) -> SequenceRecord:
    """Change one leg's digests; without changes, leave them out."""
    steps: list[Step] = []
    for step in record.steps:
        if isinstance(step, DigestRecord) and (step.rank, step.leg) == (rank, leg):
            if changes:
                steps.append(replace(step, **changes))
        else:
            steps.append(step)
    return replace(record, steps=tuple(steps))


def expected(rank: int, leg: str, finding: Finding) -> list[Finding]:
    return [finding if place == (rank, leg) else GOOD for place in LEGS]


def test_good(good_sequence: GoodSequence) -> None:
    assert digests(good_sequence()) == [GOOD] * 4
    assert digests(good_sequence(mla=True)) == [GOOD] * 3


@pytest.mark.parametrize(("rank", "leg"), LEGS)
def test_one_chunk_that_differs(good_sequence: GoodSequence, rank: int, leg: str) -> None:
    server = ("0" * 32, "f" * 32)
    meaning = {
        "source": "the server reads other bytes than we wrote",
        "destination": "the server sees other bytes than it should have restored",
    }[leg]
    text = (
        f"seq=3 rank={rank}: CHECKSUM MISMATCH, leg {leg}, chunk 1: ours {'1' * 32}, the "
        f"server's {'f' * 32}: {meaning}, or its digest API is wrong"
    )
    record = with_digests(good_sequence(), rank, leg, server=server)
    assert digests(record) == expected(rank, leg, failed(DIGESTS, text))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_another_number_of_digests(good_sequence: GoodSequence, count: int) -> None:
    record = with_digests(good_sequence(), 1, "source", server=("0" * 32,) * count)
    text = f"seq=3 rank=1: leg source: {count} digests came, 2 were asked for"
    assert digests(record) == expected(1, "source", failed(DIGESTS, text))


def test_digests_that_did_not_come(good_sequence: GoodSequence) -> None:
    record = with_digests(
        good_sequence(), 0, "source", outcome=Outcome.UNKNOWN, server=(), reason="HTTP 500"
    )
    text = "seq=3 rank=0: digests of the source blocks: HTTP 500"
    assert digests(record) == expected(0, "source", unproven(DIGESTS, text))


def test_digests_that_were_not_taken(good_sequence: GoodSequence) -> None:
    text = "seq=3 rank=1: no digests of the destination blocks were taken"
    record = with_digests(good_sequence(), 1, "destination")
    assert digests(record) == expected(1, "destination", not_looked_at(DIGESTS, text))


def test_expect_warm_has_no_source(good_sequence: GoodSequence) -> None:
    assert digests(good_sequence(expect_warm=True)) == [GOOD] * 2


def test_without_the_cross_check(good_sequence: GoodSequence) -> None:
    assert digests(good_sequence(cross_check=False)) == []

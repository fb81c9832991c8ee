"""When a fault fires: pure."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.refserver.faults.moments import EVERY_CALL, Chance, parse_moment

TURNS = range(1, 8)


@pytest.mark.parametrize(
    ("text", "firing"),
    [
        ("1", {1}),
        ("3", {3}),
        ("3+", {3, 4, 5, 6, 7}),
        ("1+", set(TURNS)),
        ("2..4", {2, 3, 4}),
        ("5..5", {5}),
        ("p=1", set(TURNS)),
        ("p=1.0,seed=4", set(TURNS)),
    ],
)
def test_turns(text: str, firing: set[int]) -> None:
    moment = parse_moment(text)
    assert {turn for turn in TURNS if moment.fires(turn)} == firing


def test_without_a_moment_every_call_fires() -> None:
    assert all(EVERY_CALL.fires(turn) for turn in (1, 2, 10**9))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is not a moment, expected @N, @N+, @N..M or @p=P"),
        ("0", "call 0, expected 1 to"),
        ("0+", "call 0, expected 1 to"),
        ("-1", "is not a moment"),
        ("+", "is not a moment"),
        ("1.5", "is not a moment"),
        ("1000000001", "expected 1 to 1000000000"),
        ("4..2", "4..2 ends before it begins"),
        ("2..", "is not a moment"),
        ("2..3+", "is not a moment"),
        ("٣", "is not a moment"),
        ("3\n", "is not a moment"),
        ("p=0", "probability 0, expected more than 0"),
        ("p=1.01", "at most 1"),
        ("p=nan", "is not a moment"),
        ("p=.5", "is not a moment"),
        ("p=0.5,seed=", "is not a moment"),
        ("p=0.5,seed=9223372036854775808", "expected at most 9223372036854775807"),
        ("p=0.5,sead=1", "is not a moment"),
    ],
)
def test_refused(text: str, expected: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_moment(text)
    assert expected in str(caught.value)


@given(st.integers(0, 2**63 - 1), st.integers(1, 10**9))
def test_chance_is_a_function_of_seed_and_turn(seed: int, turn: int) -> None:
    chance = Chance(probability=Decimal("0.5"), seed=seed)
    assert chance.fires(turn) is chance.fires(turn)
    # What fires rarely fires whenever it is made to fire more often.
    rare = Chance(probability=Decimal("0.1"), seed=seed)
    assert not rare.fires(turn) or chance.fires(turn)


def test_chance_comes_as_often_as_it_says_and_differs_by_seed() -> None:
    hits = {
        seed: [turn for turn in range(1, 2001) if parse_moment(f"p=0.05,seed={seed}").fires(turn)]
        for seed in (0, 1)
    }
    assert all(60 <= len(turns) <= 140 for turns in hits.values())
    assert hits[0] != hits[1]
    assert parse_moment("p=0.05").fires(hits[0][0])

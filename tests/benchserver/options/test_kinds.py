"""Kinds of values: how they read as text, and their bounds."""

from __future__ import annotations

import enum
import math

import pytest

from benchserver.options.kinds import (
    Action,
    Choice,
    Flag,
    Kind,
    Number,
    Port,
    Text,
    Texts,
    Whole,
    bounds,
    placeholder,
    range_problem,
    shown,
)


class Word(enum.Enum):
    """One of a few."""

    A = "a word"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (10.0, "10"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1e-05, "1e-05"),
        (Word.A, "a word"),
        ("text", "text"),
    ],
)
def test_values_as_the_command_line_takes_them(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize("value", [0, 1, 0.5, 1.0])
def test_values_within_bounds(value: float) -> None:
    assert range_problem(value, 0, 1) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-1, "-1 is out of range, expected 0 to 1099511627776"),
        (math.nan, "nan is out of range, expected 0 to 1099511627776"),
        (math.inf, "inf is out of range, expected 0 to 1099511627776"),
        (-0.25, "-0.25 is out of range, expected 0 to 1099511627776"),
    ],
)
def test_values_out_of_bounds_are_shown_with_every_digit(value: float, text: str) -> None:
    assert range_problem(value, 0, 1 << 40) == text


def test_a_value_of_any_length_stays_in_its_line() -> None:
    assert len(range_problem(10**400, 0, 1)) < 120


@pytest.mark.parametrize(
    ("kind", "word", "limits"),
    [
        (Whole(1, 5), "N", (1, 5)),
        (Port(), "N", (0, 65535)),
        (Number(0.5, 2.0), "SECS", (0.5, 2.0)),
        (Number(0.0, 1.0, "SHARE"), "SHARE", (0.0, 1.0)),
        (Choice(("a", "b")), "[a|b]", None),
        (Text("URL"), "URL", None),
        (Texts("NAME"), "NAME", None),
        (Flag(), "", None),
        (Action(), "", None),
    ],
)
def test_what_the_help_says_of_a_kind(
    kind: Kind, word: str, limits: tuple[float, float] | None
) -> None:
    assert placeholder(kind) == word
    assert bounds(kind) == limits

"""Numbers that the command line takes, and those that only Python would."""

from __future__ import annotations

import math
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.cli.types import StrictFloat, StrictInt, Text

INT = StrictInt(-5, 100)
FLOAT = StrictFloat(0.001, 1e6)


@pytest.mark.parametrize(
    ("given_value", "value"),
    [("0", 0), ("-5", -5), ("100", 100), ("007", 7), (" 7 ", 7), ("-0", 0), (7, 7)],
)
def test_integers(given_value: Any, value: int) -> None:
    converted = INT.convert(given_value, None, None)
    assert converted == value
    assert type(converted) is int


NOT_DECIMAL_INTEGERS = [
    "",
    " ",
    "+5",
    "5.0",
    "1e1",
    "1_0",
    "0x10",
    "٥",
    "５",
    "²",
    "--5",
    "- 5",
    "5 5",
    "5\n",
    "\t5",
    "nan",
    "inf",
    "9" * 20,
    "\ud800",
    True,
    5.0,
    None,
    [5],
]


@pytest.mark.parametrize("value", NOT_DECIMAL_INTEGERS)
def test_what_is_no_integer(value: Any) -> None:
    with pytest.raises(click.BadParameter, match="is not a decimal integer") as caught:
        INT.convert(value, None, None)
    assert caught.value.message.isprintable()
    assert caught.value.message.isascii()
    assert len(caught.value.message) < 100


@pytest.mark.parametrize("value", ["-6", "101", 101, "9999999999999999999"])
def test_integers_out_of_range(value: Any) -> None:
    with pytest.raises(click.BadParameter, match="is out of range, expected -5 to 100"):
        INT.convert(value, None, None)


@pytest.mark.parametrize(
    ("given_value", "value"),
    [
        ("0.001", 0.001),
        ("5", 5.0),
        ("1000000", 1e6),
        ("1e6", 1e6),
        ("1.5E-2", 0.015),
        ("2e+1", 20.0),
        (" 1 ", 1.0),
        (5, 5.0),
        (0.5, 0.5),
    ],
)
def test_numbers(given_value: Any, value: float) -> None:
    converted = FLOAT.convert(given_value, None, None)
    assert converted == value
    assert type(converted) is float


@pytest.mark.parametrize(
    "value",
    [
        "",
        "nan",
        "NaN",
        "inf",
        "-inf",
        "infinity",
        "+1",
        ".5",
        "5.",
        "1_0",
        "1,5",
        "1e",
        "0x1p3",
        "٥.٥",
        "1 2",
        True,
        None,
    ],
)
def test_what_is_no_number(value: Any) -> None:
    with pytest.raises(click.BadParameter, match="is not a decimal number"):
        FLOAT.convert(value, None, None)


@pytest.mark.parametrize("value", ["0", "-1", "1e7", "1e99", "0.0009", math.nan, math.inf, -1, 0])
def test_numbers_out_of_range(value: Any) -> None:
    with pytest.raises(click.BadParameter, match=r"is out of range, expected 0\.001 to 1000000"):
        FLOAT.convert(value, None, None)


@given(st.text(max_size=12))
def test_any_text_is_within_bounds_or_a_bad_parameter(text: str) -> None:
    for kind, low, high in ((INT, -5, 100), (FLOAT, 0.001, 1e6)):
        try:
            value = kind.convert(text, None, None)
        except click.BadParameter:
            continue
        assert low <= value <= high
        assert text.isascii()


@pytest.mark.parametrize(
    ("high", "value", "message"),
    [
        (1, "1.0000001", "1.0000001 is out of range, expected 0 to 1"),
        (31_622_400, "31622401", "31622401 is out of range, expected 0 to 31622400"),
        (1.5, "1e99", "1e+99 is out of range, expected 0 to 1.5"),
    ],
)
def test_a_number_out_of_range_is_shown_with_every_digit(
    high: float, value: str, message: str
) -> None:
    with pytest.raises(click.BadParameter) as caught:
        StrictFloat(0, high).convert(value, None, None)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("given_value", "text"),
    [
        ("модель", "модель"),
        ("模\ud800", "模\ud800"),
        ("модель".encode().decode("ascii", "surrogateescape"), "модель"),
        ("\udcff", "\udcff"),
    ],
)
def test_text_of_a_locale_that_has_ascii_alone(given_value: str, text: str) -> None:
    assert Text().convert(given_value, None, None) == text


def test_what_is_no_text() -> None:
    with pytest.raises(click.BadParameter, match="5 is not text"):
        Text().convert(5, None, None)

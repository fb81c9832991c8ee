"""The words of a workload: by key, within bounds, or one line that names what is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.errors import UsageError
from benchserver.load.workloads.words import Words, read_words

KEYS = ("first", "second")


def read(text: str) -> Words:
    return read_words(text, form="FORM", keys=KEYS, bare="first")


def test_values_stand_by_key_and_one_may_stand_without() -> None:
    assert read("name").values == {}
    assert read("name:1").values == {"first": "1"}
    assert read("name:1,second=2").values == {"first": "1", "second": "2"}
    assert read("name:second=2,first=1").values == {"first": "1", "second": "2"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name:", "--workload name:: first is empty"),
        ("name:1,2", "--workload name:1,2: 2 is not known, expected FORM"),
        ("name:third=3", "third=3 is not known, expected FORM"),
        ("name:1,", "nothing is not known"),
        ("name:1,first=2", "first is given twice"),
        ("name", "--workload name: expected FORM"),
        ("name:x", "first is x, expected a number from 0 to 10"),
        ("name:nan", "first is nan, expected a number from 0 to 10"),
        ("name:-1", "first is -1, expected"),
        ("name:10.5", "first is 10.5, expected"),
    ],
)
def test_what_is_wrong_is_said(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(text).number("first", low=0, high=10)
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["1.0", "1e1", "0", "11", "", "9" * 5000, "٣", "1_0"])
def test_whole_numbers_are_whole_and_within_their_bounds(text: str) -> None:
    with pytest.raises(UsageError, match="expected a whole number from 1 to 10"):
        read(f"name:{text}").whole("first", low=1, high=10)


def test_defaults_stand_for_what_is_not_given() -> None:
    assert read("name").whole("second", low=1, high=10, default=4) == 4
    assert read("name").number("second", low=0, high=10, default=0.25) == 0.25
    assert read("name:second=3").whole("second", low=1, high=10, default=4) == 3


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    error, value = "", 0.0
    try:
        value = read(text).number("first", low=0, high=10)
    except UsageError as refused:
        error = str(refused)
    assert error.isprintable()
    assert 0 <= value <= 10

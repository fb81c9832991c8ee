"""What is not what it should be is absent."""

from __future__ import annotations

import pytest

from benchserver.page.reading import as_number, figure, items, mapping, rows_of_numbers, words


def test_values_are_found_by_their_path() -> None:
    document = {"a": {"b": {"n": 3, "t": "x", "l": [1]}}}
    assert figure(document, "a", "b", "n") == 3.0
    assert words(document, "a", "b", "t") == "x"
    assert items(document, "a", "b", "l") == [1]
    assert mapping(document, "a", "b")["n"] == 3


@pytest.mark.parametrize("document", [None, [], {"a": 3}, {"a": {"n": {}}}, {"a": None}])
def test_what_is_not_there_is_absent(document: object) -> None:
    assert figure(document, "a", "n") is None
    assert words(document, "a", "n") == ""
    assert items(document, "a", "n") == ()
    assert mapping(document, "a", "n") == {}


@pytest.mark.parametrize("value", [True, "3", None, float("nan"), float("inf"), 10**400])
def test_what_is_no_finite_number_is_none(value: object) -> None:
    assert as_number(value) is None


def test_rows_of_another_form_are_left_out() -> None:
    rows = [[1, 2], [1], "ab", [1, "2"], [None, 1], (3, 4.5)]
    assert rows_of_numbers(rows, 2) == [(1.0, 2.0), (3.0, 4.5)]

"""How values are shown in errors, and told from each other."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.values import clip, is_int, is_int_list, refuse


class Untouchable(list[int]):
    """Counts how many of its items were looked at."""

    looked = 0

    def __iter__(self) -> Any:
        for item in super().__iter__():
            type(self).looked += 1
            yield item


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("abc", "'abc'"),
        ("ä\n", r"'\xe4\n'"),
        (b"\x00", r"b'\x00'"),
        ([1, "a", None], "[1, 'a', None]"),
        ((1,), "(1,)"),
        ((), "()"),
        ({"a": [1.5, True]}, "{'a': [1.5, True]}"),
        (1 << 600, "an integer of 601 bits"),
        ("x" * 60, "'" + "x" * 56 + "..."),
        ([[[[1]]]], "[[[[1]]]]"),
    ],
)
def test_a_value_is_shown_in_one_short_line(value: Any, shown: str) -> None:
    assert clip(value) == shown
    assert clip(value).isascii()


@pytest.mark.parametrize("value", ["x" * 10_000, b"x" * 10_000, {"x" * 100: 1}, [0] * 10_000])
def test_a_large_value_is_cut(value: Any) -> None:
    assert len(clip(value)) == 60
    assert clip(value).endswith("...")


def test_no_more_is_looked_at_than_is_shown() -> None:
    clip(Untouchable(range(100_000)))
    assert Untouchable.looked < 100


def test_a_refusal_shows_the_value_and_what_was_expected() -> None:
    assert str(refuse("a bool", [1])) == "got [1], expected a bool"


@pytest.mark.parametrize("value", [True, 1.0, "1", None])
def test_what_looks_like_an_integer_and_is_not_one(value: Any) -> None:
    assert not is_int(value)
    assert not is_int_list([1, value])


def test_integers() -> None:
    assert is_int(-1)
    assert is_int_list([])
    assert is_int_list([1, -2])
    assert not is_int_list((1, 2))

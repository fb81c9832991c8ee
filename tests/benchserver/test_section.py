"""Sections: what JSON can hold, each key once, and one that fails alone."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.line import Line
from benchserver.section import REPORT_KEYS, Section, make_sections


def section(key: str, **document: Any) -> Section:
    return Section(key=key, title=f"{key}:", lines=(Line("one"),), document=document)


@pytest.mark.parametrize("key", sorted(REPORT_KEYS))
def test_no_section_takes_the_place_of_what_every_report_says(key: str) -> None:
    with pytest.raises(ValueError, match=f"'{key}' is a key of every report"):
        section(key)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"bytes", object()])
def test_a_document_is_what_json_can_hold(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        section("load", deep={"list": [value]})


def test_sections_are_made_in_order() -> None:
    made, missing = make_sections([lambda: section("b", n=1), lambda: section("a", n=2)])
    assert [(one.key, one.document) for one in made] == [("b", {"n": 1}), ("a", {"n": 2})]
    assert missing == ()


def test_one_that_cannot_be_made_is_missing_and_takes_no_other_with_it() -> None:
    def broken() -> Section:
        raise ZeroDivisionError("division\nby zero")

    makers = [
        broken,
        lambda: section("a"),
        lambda: section("a"),
        lambda: section("verdict"),
        lambda: section("run"),
    ]
    made, missing = make_sections(makers)
    assert [one.key for one in made] == ["a"]
    begin = "a part of the report could not be made, "
    end = "; that is a fault of bench-server"
    assert missing == (
        f"{begin}ZeroDivisionError: division by zero{end}",
        f"{begin}ValueError: 'a' is the key of two sections{end}",
        f"{begin}ValueError: 'verdict' is a key of every report{end}",
        f"{begin}ValueError: 'run' is the key of the record of a run{end}",
    )

"""Whatever a value holds, it is text."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st

from benchserver.page.markup import element, facts, folded, label, number, table, text


class Tags(HTMLParser):
    """Collects what a browser would take for markup."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)


@settings(max_examples=60)
@given(value=st.text())
def test_no_text_is_ever_markup(value: str) -> None:
    assert Tags(text(value)).tags == []
    assert Tags(element("p", text(value), title=value)).tags == ["p"]


def test_what_nobody_sees_is_written_as_its_code_point() -> None:
    assert text("a\0b\u202ec\u200bd\ud800") == "a\\x00b\\u202ec\\u200bd\\ud800"
    assert text("ä\n\t🙂") == "ä\n\t🙂"


def test_a_long_text_is_cut_and_says_by_how_much() -> None:
    assert text("x" * 10, most=4) == "xxxx ... (6 more characters)"


def test_numbers_have_three_digits_that_count() -> None:
    values = (1234.56, 12.34, 1.234, 0.1234, 0.0, 1e-6, float("nan"))
    assert [number(value) for value in values] == [
        "1,235", "12.3", "1.23", "0.123", "0.000", "1e-06", "not a number",
    ]  # fmt: skip


def test_a_table_has_a_caption_and_headings_and_says_what_is_not_there() -> None:
    made = table("Figures", ("what", "n"), [("a<b", 1), ("c", None), ("d", 0.5)])
    assert made.count('<th scope="row">') == 3
    assert "<caption>Figures</caption>" in made
    assert "a&lt;b" in made
    assert ">–<" in made
    assert ">0.500<" in made


def test_what_is_folded_away_has_a_line_that_says_what_it_is() -> None:
    made = folded("More", facts([("seed", 7)]))
    assert made.startswith("<details><summary>More</summary><dl>")
    assert "<dt>seed</dt><dd>7</dd>" in made


def test_a_label_is_short_and_seen() -> None:
    assert label("RETRIEVE, before") == "RETRIEVE, before"
    assert label("a\n\tb") == "a b"
    assert label("a\0\u202eb") == "a\\x00\\u202eb"
    assert label("x" * 28) == "x" * 28
    assert label("x" * 29) == "x" * 27 + "…"
    assert label("字" * 15) == "字" * 13 + "…"

"""Drawings that are part of a page."""

from __future__ import annotations

from typing import Any, cast
from xml.etree import ElementTree

from benchserver.page.svg import COLOURS, SETTINGS, inline, new_figure


def drawn(key: str) -> str:
    import matplotlib

    with matplotlib.rc_context(cast(Any, SETTINGS)):
        figure = new_figure()
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], "o", color=COLOURS[0], gid="mark-0")
        axes.set_xlabel("$x$ <ms>")
        return inline(figure, key, "A <title>", "What it shows")


def test_it_is_one_element_in_the_colours_of_the_page() -> None:
    made = drawn("one")
    tree = ElementTree.fromstring(made)
    assert tree.attrib["role"] == "img"
    assert tree.attrib["aria-labelledby"] == "one-title one-text"
    assert "width" not in tree.attrib
    assert tree[0].text == "A <title>"
    assert "var(--s1)" in made
    assert "#0101" not in made
    assert "$x$ &lt;ms&gt;" in made
    assert "DejaVu" not in made


def test_ids_belong_to_one_chart_and_the_same_chart_gives_the_same_bytes() -> None:
    first, again, other = drawn("one"), drawn("one"), drawn("two")
    assert first == again
    ids = [
        {e.attrib["id"] for e in ElementTree.fromstring(made).iter() if "id" in e.attrib}
        for made in (first, other)
    ]
    assert not ids[0] & ids[1]
    assert "one-mark-0" in ids[0]

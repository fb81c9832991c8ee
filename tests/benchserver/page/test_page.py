"""The skeleton of a page."""

from __future__ import annotations

from benchserver.page.markup import text
from benchserver.page.page import Head, Part, page


def test_a_page_says_its_verdict_first_and_asks_nobody_for_anything() -> None:
    head = Head(
        title="a <run>", tone="invalid", verdict="FAIL", sentences=["It failed."],
        figures=[("time", "4 s")],
    )  # fmt: skip
    made = page(head, [Part(heading="One", inner=text("& more"))]).decode()
    assert made.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert "<title>FAIL: a &lt;run&gt;</title>" in made
    assert made.index("FAIL</strong>") < made.index("<main>") < made.index("<h2>One</h2>&amp; more")
    assert "default-src 'none'" in made
    assert "<script" not in made
    assert "http" not in made.replace("http-equiv", "")

"""A page: a verdict on top in words, then sections; one file that asks nobody for anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from benchserver.page.markup import Html, element, joined, text

Tone = Literal["valid", "unknown", "invalid"]

_HEAD = (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
)
"""No script and no request: whatever a report holds, it is text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a page says first: its title, the verdict in a word, in sentences, in figures."""

    title: str
    tone: Tone
    verdict: str
    sentences: Sequence[str]
    figures: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One section of a page."""

    heading: str
    inner: Html


def page(head: Head, parts: Iterable[Part]) -> bytes:
    """Return the page."""
    style = files("benchserver.page").joinpath("style.css").read_text(encoding="utf-8")
    sections = joined(
        element("section", joined((element("h2", text(part.heading)), part.inner)))
        for part in parts
    )
    return (
        f"{_HEAD}<title>{text(f'{head.verdict}: {head.title}', 200)}</title>\n"
        f"<style>\n{style}</style>\n</head>\n<body>\n"
        f"{_top(head)}\n<main>\n{sections}\n</main>\n"
        "<footer><p>Made by bench-server out of a JSON report. This file is complete: it needs no "
        "network and runs no script.</p></footer>\n</body>\n</html>\n"
    ).encode("utf-8", "backslashreplace")


def _top(head: Head) -> Html:
    sentences = joined(element("p", text(sentence)) for sentence in head.sentences)
    verdict = joined((element("strong", text(head.verdict)), sentences))
    figures = joined(
        element("div", joined((element("dt", text(name)), element("dd", text(value)))))
        for name, value in head.figures
    )
    inner = (
        element("h1", text(head.title, 300)),
        element("div", verdict, class_=f"verdict {head.tone}", role="status"),
        element("dl", figures, class_="figures"),
    )
    return element("header", joined(inner))

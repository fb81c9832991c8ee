"""HTML as values: text that cannot become markup, and the few elements that pages are made of.

What comes from a peer stands in reports as it came, so it may hold anything.  Here it becomes text:
escaped, without characters that nobody sees or that turn the direction of writing, and bounded.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NewType

Html = NewType("Html", str)
"""Markup: whatever is not made here has gone through `text`."""

MOST_CHARS = 4000
_LABEL_WIDTH = 28
"""Of a name beside an axis, in letters: the axis must keep the most of the width."""
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def text(value: object, most: int = MOST_CHARS) -> Html:
    """Return a value as text; what has no sight of its own is written as its code point."""
    shown = str(value)
    cut = f" ... ({len(shown) - most} more characters)" if len(shown) > most else ""
    return Html(html.escape(_sight(shown[:most]) + cut))


def label(value: object) -> str:
    """Return a name as it may stand in a drawing, not escaped yet: seen, and short."""
    shown = _sight(" ".join(str(value)[: 2 * _LABEL_WIDTH].split()))
    widths = accumulate(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in shown)
    fits = sum(width <= _LABEL_WIDTH for width in widths)
    return shown if fits == len(shown) else f"{shown[: fits - 1]}…"


def _sight(shown: str) -> str:
    return "".join(_seen(char) for char in shown)


def _seen(char: str) -> str:
    if char.isascii():
        return char if char.isprintable() or char in "\n\t" else f"\\x{ord(char):02x}"
    return f"\\u{ord(char):04x}" if unicodedata.category(char) in _UNSEEN else char


def joined(parts: Iterable[Html]) -> Html:
    """Return parts in a row."""
    return Html("".join(parts))


def element(tag: str, inner: Html, **attributes: str) -> Html:
    """Return an element; a trailing underscore of an attribute's name is left out."""
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for name, value in attributes.items()
    )
    return Html(f"<{tag}{named}>{inner}</{tag}>")


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object | None]]) -> Html:
    """Return a table: the first cell of a row is its heading; None is a dash."""
    top = joined(element("th", text(name), scope="col") for name in head)
    body = joined(element("tr", _row(row)) for row in rows)
    inner = joined(
        (
            element("caption", text(caption)),
            element("thead", element("tr", top)),
            element("tbody", body),
        )
    )
    return element("div", element("table", inner), class_="wide", tabindex="0", role="region",
                   aria_label=caption)  # fmt: skip


def _row(row: Sequence[object | None]) -> Html:
    first, *rest = row
    cells = [element("th", _cell(first), scope="row")]
    cells += [element("td", _cell(cell), class_=_align(cell)) for cell in rest]
    return joined(cells)


def _cell(value: object | None) -> Html:
    if value is None:
        return Html("–")
    return text(number(value) if isinstance(value, float) else value)


def _align(value: object) -> str:
    return "text" if isinstance(value, str) else "number"


def number(value: float) -> str:
    """Return a number with three digits that count."""
    if value != value or value in (float("inf"), float("-inf")):
        return "not a number"
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    shown = f"{value:,.{digits}f}"
    return f"{value:.3g}" if size and not float(shown.replace(",", "")) else shown


def folded(summary: str, inner: Html) -> Html:
    """Return what is folded away under a line; paper shows it unfolded."""
    return element("details", joined((element("summary", text(summary)), inner)))


def facts(pairs: Iterable[tuple[str, object]]) -> Html:
    """Return names and what they stand for."""
    return element(
        "dl",
        joined(
            element("div", joined((element("dt", text(name)), element("dd", text(value)))))
            for name, value in pairs
        ),
    )

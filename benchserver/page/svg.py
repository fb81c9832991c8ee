"""Figures of matplotlib as inline SVG: text stays text, colours are those of the page.

Each chart draws in the marker colours below; they become variables of the page's style, so that one
picture serves light and dark.  Ids are unique to a chart, and the same figures give the same bytes.
"""

from __future__ import annotations

import html
import io
import re
from typing import TYPE_CHECKING, Any

from benchserver.page.markup import Html, text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#010101", "#020202", "#030303", "#040404", "#050505", "#060606")
"""Of the series of a chart."""

INK, SOFT, AXIS, GRID = "#0a0a0a", "#0b0b0b", "#0c0c0c", "#0d0d0d"

_VARIABLES = {
    **{colour: f"var(--s{number})" for number, colour in enumerate(COLOURS, 1)},
    INK: "var(--ink)",
    SOFT: "var(--soft)",
    AXIS: "var(--axis)",
    GRID: "var(--grid)",
}
_COLOUR = re.compile("|".join(_VARIABLES))
_ID = re.compile(r'\sid="([^"]*)"')
_REFERENCE = re.compile(r'(url\(#|href="#)([^)"]*)')
_FONT = re.compile(r"(font(?:-family)?:[^;\"]*?)'[^;\"]*(?=[;\"])")
_SIZE = re.compile(r'\s(?:width|height)="[0-9.]+pt"')
WIDTH_IN = 4.6
"""Shown at the width of a phone its text has the size of small print, on a desk it is larger."""

SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "svg.hashsalt": "bench-server",
    "font.size": 8.5,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": AXIS,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": AXIS,
    "ytick.color": AXIS,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
}


def new_figure(height_in: float = 2.5, *, measured: bool = True) -> Figure:
    """Return an empty figure; call within `rc_context(SETTINGS)`.

    `measured`: its margins fit its labels, which takes as long again as to draw it.  Otherwise
    there is room for the numbers of an axis, and for a legend above.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained" if measured else None)
    if not measured:
        figure.subplots_adjust(left=0.14, right=0.97, bottom=0.19, top=0.88)
    return figure


def inline(figure: Figure, key: str, title: str, described: str) -> Html:
    """Return a figure as an SVG element, with its title and its description for who cannot see."""
    out = io.BytesIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    drawn = out.getvalue().decode()
    drawn = drawn[drawn.index("<svg") :]
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    drawn = _COLOUR.sub(lambda found: _VARIABLES[found[0]], drawn)
    drawn = _FONT.sub(r"\1system-ui, sans-serif", drawn)
    drawn = _with_ids_of(key, drawn)
    opening, _, rest = drawn.partition(">")
    opening = _SIZE.sub("", opening)
    names = f'role="img" aria-labelledby="{key}-title {key}-text" data-chart="{key}"'
    told = f'<title id="{key}-title">{text(title)}</title>'
    told += f'<desc id="{key}-text">{text(described)}</desc>'
    return Html(f"{opening} {names}>{told}{rest}")


def _with_ids_of(key: str, drawn: str) -> str:
    """Return a drawing whose ids belong to one chart; those that nothing refers to are gone."""
    used = {found[2] for found in _REFERENCE.finditer(drawn)}

    def named(found: re.Match[str]) -> str:
        name = found[1]
        if name in used or name.startswith("mark-"):
            return f' id="{key}-{html.escape(name)}"'
        return ""

    drawn = _ID.sub(named, drawn)
    return _REFERENCE.sub(lambda found: f"{found[1]}{key}-{found[2]}", drawn)

"""The page of a comparison, out of its JSON document: both sides in each chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchserver.page.charts import Chart
from benchserver.page.markup import Html, element, facts, folded, joined, table, text
from benchserver.page.page import Head, Part, Tone, page
from benchserver.page.reading import Document, as_number, figure, items, mapping, words
from benchserver.page.sides import Change, changes, runs

MOST_CELLS = 12
"""Cells that have charts; all have a table."""

_OUTCOMES: dict[float, tuple[Tone, str]] = {
    0: ("valid", "NO GATE BROKEN"),
    1: ("invalid", "GATE BROKEN"),
    3: ("unknown", "CANNOT TELL"),
}
_SHOWN = ("worse", "better", "changed")


def comparison_page(document: Document) -> bytes:
    """Return the page of a comparison."""
    cells = [words(cell, "cell") for cell in _mappings(document, "cells")]
    together = [name for name in _cells_named(document) if name not in cells]
    parts = [Part(heading="Gates", inner=_gates(document))] if items(document, "gates") else []
    for place, cell in enumerate([*together, *cells]):
        drawn = _charts(document, cell, place) if place < MOST_CELLS else []
        heading = f"Cell {cell}" if cell and cell not in together else cell or "Figures"
        charts = element("div", joined(chart.markup() for chart in drawn), class_="charts")
        figures = folded("All figures as a table", _table(document, cell))
        parts.append(Part(heading=heading[:1].upper() + heading[1:],
                          inner=joined((charts, figures))))  # fmt: skip
    parts.append(Part(heading="Runs", inner=_folded(document)))
    return page(_head(document), parts)


def _head(document: Document) -> Head:
    rows = _mappings(document, "figures")
    shown = [row for row in rows if words(row, "finding") in _SHOWN]
    code = figure(document, "exit_code")
    tone, verdict = _OUTCOMES.get(3 if code is None else code, _OUTCOMES[3])
    if not items(document, "gates"):
        tone, verdict = ("unknown", "DIFFERENCE SHOWN") if shown else ("valid", "NO DIFFERENCE")
        if not any(words(row, "finding") in (*_SHOWN, "no difference shown") for row in rows):
            tone, verdict = "unknown", "CANNOT TELL"
    remarks = [str(remark) for remark in items(document, "remarks")]
    return Head(
        title=f"A, {_side_text(document, 'a')}, beside B, {_side_text(document, 'b')}",
        tone=tone,
        verdict=verdict,
        sentences=[words(document, "summary"), *_hows(document), *remarks],
        figures=[
            ("runs of A", str(len(_runs(document, "a")))),
            ("runs of B", str(len(_runs(document, "b")))),
            ("figures", str(len(rows))),
            ("with a difference", str(len(shown))),
        ],
    )


def _side_text(document: Document, side: str) -> str:
    servers = ", ".join(map(str, items(document, "sides", side, "servers")))
    return f"server {servers or 'of no known version'}"


def _hows(document: Document) -> Iterator[str]:
    cells = _mappings(document, "cells")
    if any(cell.get("pairs") is True for cell in cells):
        yield "Runs are compared in pairs, in the order of time."
    if any(cell.get("one_side_before_the_other") is True for cell in cells):
        yield "One side ran before the other: a drift would look like a difference."


def _gates(document: Document) -> Html:
    rows = [
        (words(gate, "gate"), words(gate, "outcome"), words(gate, "reason"))
        for gate in _mappings(document, "gates")
    ]
    return table("Gates", ("gate", "outcome", "interval, or why not"), rows)


def _charts(document: Document, cell: str, place: int) -> list[Chart]:
    rows = [row for row in _mappings(document, "figures") if words(row, "cell") == cell]
    found = [
        Change(
            label=words(row, "figure"),
            change=figure(row, "change") or 0.0,
            low=low,
            high=high,
            finding=words(row, "finding"),
        )
        for row in rows
        if row.get("by_ratio") is True
        if (low := figure(row, "low")) is not None and (high := figure(row, "high")) is not None
    ]
    title = "Change of each figure, with its interval"
    drawn = [changes(f"changes-{place}", title, found)]
    a, b = (_values(document, cell, side) for side in ("a", "b"))
    for unit, name in (("ms", "latencies"), ("GB/s", "throughput"), ("/s", "requests")):
        named = [words(row, "figure") for row in rows if words(row, "unit") == unit]
        lines = [(figure_name, _of(a, figure_name), _of(b, figure_name)) for figure_name in named]
        drawn.append(runs(f"runs-{place}-{name}", f"Every run: {name}", unit, lines))
    return [chart for chart in drawn if chart is not None]


def _values(document: Document, cell: str, side: str) -> list[Document]:
    """Return the figures of the runs of a side that are of this cell."""
    names = {
        str(name)
        for one in _mappings(document, "cells")
        if words(one, "cell") == cell
        for name in items(one, side)
    }
    return [mapping(run, "figures") for run in _runs(document, side) if words(run, "file") in names]


def _of(found: Sequence[Document], name: str) -> list[float]:
    return [value for one in found if (value := as_number(one.get(name))) is not None]


def _table(document: Document, cell: str) -> Html:
    rows = [
        (
            words(row, "figure"),
            figure(row, "a"),
            figure(row, "b"),
            words(row, "unit"),
            _change_text(row, "change"),
            f"{_change_text(row, 'low')} to {_change_text(row, 'high')}",
            figure(row, "corrected_p"),
            words(row, "finding"),
        )
        for row in _mappings(document, "figures")
        if words(row, "cell") == cell
    ]
    head = ("figure", "A", "B", "unit", "change", "95 % interval", "p, corrected", "finding")
    return table(f"Figures of {cell or 'all runs'}", head, rows)


def _change_text(row: Document, name: str) -> str:
    value = figure(row, name)
    if value is None:
        return "–"
    return f"{value:+.1%}" if row.get("by_ratio") is True else f"{value:+.3g}"


def _folded(document: Document) -> Html:
    parts = []
    for side in ("a", "b"):
        named = [(words(run, "file"), words(run, "id")) for run in _runs(document, side)]
        parts.append(folded(f"Runs of {side.upper()}", facts(named)))
    if left_out := items(document, "left_out"):
        told = joined(element("li", text(line)) for line in left_out)
        parts.append(folded("Figures that are not looked at", element("ul", told)))
    return joined(parts)


def _runs(document: Document, side: str) -> list[Document]:
    return _mappings(mapping(document, "sides", side), "runs")


def _cells_named(document: Document) -> list[str]:
    return list(dict.fromkeys(words(row, "cell") for row in _mappings(document, "figures")))


def _mappings(document: Document, name: str) -> list[Document]:
    return [one for one in items(document, name) if isinstance(one, Mapping)]

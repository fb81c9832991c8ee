"""A comparison as lines of at most 100 columns.  Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from benchserver.compare.comparing import Comparison, Group
from benchserver.compare.estimate import LEVEL, MIN_PAIRS
from benchserver.compare.gates import Judged, Outcome
from benchserver.compare.power import POWER
from benchserver.compare.rows import ALL_CELLS, Finding, Row, change_text
from benchserver.compare.verdict import Told

NOTHING = "-"
_WIDTHS = (22, 10, 10, 8, 17, 7, 5)
_HEAD = ("figure", "A", "B", "change", "95 % interval", "p", "more")
_LEFT_OUT_SHOWN = 6
_SMALL_GB_PER_S = 0.1


def lines(told: Told) -> Iterator[str]:
    """Yield all of it: the sides, what is allowed to differ, the tables, gates, the last line."""
    for side in told.sides:
        servers = ", ".join(dict.fromkeys(run.server for run in side.runs if run.server))
        yield f"{side.name}: {_runs(len(side.runs))} of server {servers or 'of no known version'}"
    for remark in told.remarks:
        yield f"  {remark}"
    for group in told.comparison.groups:
        yield from _cell_lines(told.comparison, group)
    if together := [row for row in told.comparison.rows if row.cell == ALL_CELLS]:
        yield ""
        yield f"{ALL_CELLS}: the mean change, each cell with the same weight"
        yield from _table(together)
    yield ""
    yield from _legend(told.comparison)
    for judged in told.gates:
        yield from _gate_lines(judged)
    yield told.summary


def _runs(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"


def _cell_lines(comparison: Comparison, group: Group) -> Iterator[str]:
    yield ""
    label = f"cell {group.cell.label}: " if group.cell.label else ""
    yield f"{label}{_how(group)}"
    yield from _table([row for row in comparison.rows if row.cell == group.cell.label])


def _how(group: Group) -> str:
    a, b = len(group.cell.a), len(group.cell.b)
    if min(a, b) == 1:
        return f"{a} and {_runs(b)}: one run a side has no interval, so nothing can be told"
    if group.pairs:
        return f"{a} pairs of runs, in the order of time (the sides alternate)"
    text = f"two samples of {a} and {_runs(b)}"
    if group.order.paired:
        return f"{text} (the sides alternate; pairs from {MIN_PAIRS} a side on)"
    if group.order.apart:
        return f"{text}; one side ran before the other: a drift would look like a difference"
    return text


def _table(rows: Sequence[Row]) -> Iterator[str]:
    yield _line(_HEAD, "")
    for row in rows:
        yield _line(_cells(row), row.finding.value)


def _cells(row: Row) -> tuple[str, ...]:
    found = row.found
    name = row.figure.name
    if found is None:
        return name, _value(row, row.a), _value(row, row.b), _bare_change(row), *(NOTHING,) * 3
    low, high = found.interval()
    interval = f"{change_text(row.figure, low)}..{change_text(row.figure, high)}"
    corrected = row.corrected_p or 0.0
    return (
        name,
        _value(row, row.a),
        _value(row, row.b),
        change_text(row.figure, found.difference),
        interval,
        f"{corrected:.3f}" if corrected >= 0.001 else "<0.001",
        NOTHING if row.more_runs is None else str(row.more_runs),
    )


def _bare_change(row: Row) -> str:
    """Return the change of a figure without an interval."""
    if row.a is None or row.b is None:
        return NOTHING
    return change_text(
        row.figure, math.log(row.b / row.a) if row.figure.by_ratio else row.b - row.a
    )


def _value(row: Row, value: float | None) -> str:
    if value is None:
        return NOTHING
    if row.figure.unit == "bytes":
        return f"{value / 2**20:.4g} MiB"
    if row.figure.unit == "GB/s" and value < _SMALL_GB_PER_S:
        return f"{value * 1e3:.3g} MB/s"
    return f"{value:.4g} {row.figure.unit}".rstrip()


def _line(cells: Sequence[str], finding: str) -> str:
    first, *others = zip(cells, _WIDTHS, strict=True)
    right = "".join(f" {text:>{width}}" for text, width in others)
    shown = "" if finding == Finding.NONE.value else f" {finding.upper()}"
    return f"{first[0]:<{first[1]}}{right}{shown}".rstrip()


def _legend(comparison: Comparison) -> Iterator[str]:
    yield f"interval: {LEVEL:.0%}, of each figure by itself, by a bootstrap of the runs"
    yield "p: how likely such a change is by chance, corrected for all figures looked at (Holm);"
    yield f"  up to {1 - LEVEL:.2g} shows a difference"
    yield f"more: so many more runs a side would show a change of 5 % (in {POWER:.0%} of all cases)"
    if comparison.left_out:
        yield f"not looked at: {len(comparison.left_out)} figures"
        for text in comparison.left_out[:_LEFT_OUT_SHOWN]:
            yield f"  {text}"
        if (more := len(comparison.left_out) - _LEFT_OUT_SHOWN) > 0:
            yield f"  and {more} more, in --json"


def _gate_lines(judged: Judged) -> Iterator[str]:
    word = judged.outcome.value
    shown = word if judged.outcome is Outcome.HELD else word.upper()
    yield f"gate {judged.gate.text}: {shown}: {judged.reason}"

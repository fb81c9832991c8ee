"""What a live view shows, as rows that fit a window of any size.  Pure.

Each row has a rank.  Those of the lowest ranks are shown, as many as there is room for, in the
order of the view: a window of four rows has the verdict, the time, the last failure and the rate.
A text that is too long for its row gives way to a shorter one, and is cut only if none fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len, set_cell_size

from benchserver.check.verdict import Verdict
from benchserver.line import BAD, FAINT, PLAIN, Line
from benchserver.monitor.snapshot import OperationNow, ResourceNow, Snapshot
from benchserver.report.figures import (
    clock_text,
    ms_text,
    rate_text,
    seconds_left,
    share_done,
    value_text,
    verdict_text,
)
from benchserver.report.now import VERDICT_STYLES, gb_text, troubles
from benchserver.report.trends import ASCII_BLOCKS, BLOCKS, Trends, spark

Row = tuple[Line, ...]
"""Pieces of text that stand side by side."""

_MAX_COLUMNS = 120
"""In a wider window the eye loses the row."""

_MAX_BAR = 40
_MAX_SPARK = 40
_MIN_SPARK = 6
"""A chart of fewer readings says nothing."""

_TABLE_ROWS = 7
"""A window of fewer rows shows all else before the table of operations."""

_NAME_COLUMNS = 18
_FIGURE_COLUMNS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Room for a view: so many columns and rows, and what its encoding can show."""

    columns: int
    rows: int
    ascii_only: bool = False

    @property
    def blocks(self) -> str:
        """Return what charts are drawn with."""
        return ASCII_BLOCKS if self.ascii_only else BLOCKS


def frame(now: Snapshot, trends: Trends, window: Window) -> list[Row]:
    """Return the rows of a view, at most those of the window, none wider than it."""
    window = replace(window, columns=min(window.columns, _MAX_COLUMNS))
    ranked = list(_ranked(now, trends, window))
    by_rank = sorted(range(len(ranked)), key=lambda at: (ranked[at][0], at))
    chosen = by_rank[: max(0, window.rows)]
    return [cropped(ranked[at][1], window.columns) for at in sorted(chosen)]


def cropped(row: Row, columns: int) -> Row:
    """Return a row that is at most so wide; what was cut ends in dots."""
    kept: list[Line] = []
    room = columns
    for piece in row:
        text = "".join(c if c.isprintable() else "?" for c in piece.text)
        width = cell_len(text)
        if width > room:
            dots = "..."[: max(0, room)]
            text = set_cell_size(text, max(0, room - len(dots))) + dots
        kept.append(Line(text, piece.style))
        room -= min(width, max(0, room))
    return tuple(piece for piece in kept if piece.text)


def _ranked(now: Snapshot, trends: Trends, window: Window) -> Iterator[tuple[int, Row]]:
    columns = window.columns
    yield 8, (Line(_rule(now, window), FAINT),)
    yield 0, _verdict_row(now, columns)
    yield 1, _time_row(now, window)
    for text in troubles(now):
        yield 3, (Line(text[0].upper() + text[1:], BAD),)
    yield 4, _work_row(now, trends, window)
    if text := _hits_text(now, columns):
        yield 6, (Line(text),)
    yield from _operation_rows(now, trends, window)
    yield from _resource_rows(now, trends, window)
    yield from _failure_rows(now)


def _rule(now: Snapshot, window: Window) -> str:
    dash = "-" if window.ascii_only else "─"
    return f"{dash * 2} {now.phase} ".ljust(window.columns, dash)


def _verdict_row(now: Snapshot, columns: int) -> Row:
    counts = f"{now.failed} failed, {now.unproven} unproven"
    of = "" if now.total_units is None else f" of {now.total_units}"
    verdict = verdict_text(now)
    text = _fitting(
        columns,
        f"{verdict}   {now.proven}{of} {now.unit}s proven, {counts}",
        f"{verdict}   {now.proven} proven, {counts}",
        f"{verdict}, {now.proven} proven, {now.failed} failed",
        *(
            (f"{now.proven} proven, {now.failed} failed", f"{now.proven} proven")
            if now.verdict is Verdict.VALID
            else (f"{verdict}, {now.failed} failed", verdict)
        ),
    )
    style = VERDICT_STYLES[now.verdict]
    if not text.startswith(verdict):
        return (Line(text, style),)
    return Line(verdict, style), Line(text[len(verdict) :], BAD if now.failed else PLAIN)


def _time_row(now: Snapshot, window: Window) -> Row:
    at, left_s, share = clock_text(now.at_s), seconds_left(now), share_done(now)
    if left_s is None:
        return (Line(_fitting(window.columns, f"{at} since it began", at)),)
    left = clock_text(left_s)
    text = _fitting(
        window.columns,
        f"{at} since it began, about {left} left",
        f"{at}, {left} left",
        at,
    )
    if share is None:
        return (Line(text),)
    room = min(_MAX_BAR, window.columns - len(text) - len("   100%"))
    done = f"{share:4.0%}"
    if room < _MIN_SPARK:
        return (
            (Line(text), Line(done)) if len(text) + len(done) <= window.columns else (Line(text),)
        )
    full, empty = ("#", ".") if window.ascii_only else ("━", "─")
    filled = int(share * room)
    return Line(f"{text}  "), Line(full * filled), Line(empty * (room - filled), FAINT), Line(done)


def _work_row(now: Snapshot, trends: Trends, window: Window) -> Row:
    rate = f"{rate_text(now.units_per_s)} {now.unit}s/s"
    text = _fitting(window.columns, f"{rate}, {now.calls} calls", rate)
    if gb := gb_text(now):
        text = _fitting(window.columns, f"{text}, {gb}", text)
    return Line(text), *_chart(trends.work(), text, window, from_zero=True)


def _hits_text(now: Snapshot, columns: int) -> str:
    if now.hits is None or now.hits.ratio is None:
        return ""
    ratio = f"{now.hits.ratio:.1%}"
    of = f"{now.hits.hit_chunks} of {now.hits.asked_chunks} chunks"
    return _fitting(columns, f"hits {ratio}, {of} that LOOKUP asked for", f"hits {ratio}")


_COLUMNS: tuple[tuple[int, str, Callable[[OperationNow], str]], ...] = (
    (5, "count", lambda one: str(one.count)),
    (3, "errors", lambda one: str(one.errors)),
    (2, "1/s", lambda one: rate_text(one.rate_per_s)),
    (1, "p50", lambda one: ms_text(one.p50_ms)),
    (0, "p99", lambda one: ms_text(one.p99_ms)),
    (4, "p99.9", lambda one: ms_text(one.p999_ms)),
)
"""Of the table of operations: the lower the number, the longer a column stays."""


def _operation_rows(now: Snapshot, trends: Trends, window: Window) -> Iterator[tuple[int, Row]]:
    shown = [one for one in now.operations if one.count or one.errors]
    if not shown:
        return
    longest = max(len(one.name) for one in shown)
    room = window.columns - _FIGURE_COLUMNS
    name_columns = max(1, min(max(longest, len("last minute")), _NAME_COLUMNS, room))
    fit = max(0, (window.columns - name_columns) // _FIGURE_COLUMNS)
    columns = [column for column in _COLUMNS if column[0] < fit]
    head = "".join(f"{name:>{_FIGURE_COLUMNS}}" for _, name, _ in columns)
    name = set_cell_size(_fitting(name_columns, "last minute", "ms"), name_columns)
    text = f"{name}{head}"
    unit = "  ms" if name.startswith("last") and cell_len(text) + 4 <= window.columns else ""
    rank = 5 if window.rows >= _TABLE_ROWS else 9
    yield rank, (Line(text + unit, FAINT),)
    for one in shown:
        name = set_cell_size(one.name, name_columns)
        cells = [cell(one) for _, _, cell in columns]
        text = name + "".join(f"{cell:>{_FIGURE_COLUMNS}}" for cell in cells)
        style = BAD if one.errors else PLAIN
        chart = _chart(trends.latency(one), text, window, from_zero=True)
        yield rank, (Line(text, style), *chart)


def _resource_rows(now: Snapshot, trends: Trends, window: Window) -> Iterator[tuple[int, Row]]:
    """Yield a row for what grows, and for memory; all else that is in use shares one."""
    others = []
    for resource in now.resources:
        if resource.verdict == "grows":
            yield 3, _resource_row(resource, trends, window)
        elif resource.unit == "bytes" and resource.value:
            yield 6, _resource_row(resource, trends, window)
        elif resource.value:
            others.append(f"{resource.name} {value_text(resource)}")
    if others:
        yield 7, (Line(f"held: {', '.join(others)}", FAINT),)


def _resource_row(resource: ResourceNow, trends: Trends, window: Window) -> Row:
    value = value_text(resource)
    said = f"{resource.name}  {value}, {resource.verdict}"
    reason = f" ({resource.reason})" if resource.reason else ""
    grows = resource.verdict == "grows"
    least = f"{resource.name} grows" if grows else f"{resource.name} {value}"
    text = _fitting(window.columns, said + reason, said, least)
    style = BAD if grows else PLAIN
    return Line(text, style), *_chart(trends.use(resource), text, window, from_zero=False)


def _failure_rows(now: Snapshot) -> Iterator[tuple[int, Row]]:
    """Yield the counts of what failed, and the last lines on it: the newest stays longest."""
    if now.failed_checks:
        counts = ", ".join(f"{name} {count}" for name, count in now.failed_checks.items())
        yield 5, (Line(f"failed: {counts}", BAD),)
    for age, text in reversed(list(enumerate(reversed(now.failures)))):
        yield 7 if age else 2, (Line(text, BAD),)


def _chart(
    values: Sequence[float | None], beside: str, window: Window, *, from_zero: bool
) -> Iterator[Line]:
    """Yield a chart behind a text, if there is room for one: now is at the right edge."""
    room = window.columns - cell_len(beside)
    if room < _MIN_SPARK + 2:
        return
    drawn = spark(values, min(_MAX_SPARK, room - 2), window.blocks, from_zero=from_zero)
    if drawn:
        yield Line(drawn.rjust(room), FAINT)


def _fitting(columns: int, *texts: str) -> str:
    """Return the first text that fits, or the last one."""
    known = [text for text in texts if text]
    return next((text for text in known if cell_len(text) <= columns), known[-1])

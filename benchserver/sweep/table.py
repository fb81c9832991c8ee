"""The result of a sweep as text, JSON and CSV: pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchserver.sweep.cells import EMPTY, Run, text_of
from benchserver.sweep.confidence import LEVEL, Estimate
from benchserver.sweep.figures import (
    GB_PER_S,
    HIT_RATIO,
    IDEAL_RATIO,
    LRU_RATIO,
    REQUESTS_PER_S,
    SHARE_VERIFIED,
    figures_of,
)
from benchserver.sweep.records import FORMAT, Record
from benchserver.sweep.rows import MAX_RATE, Row
from benchserver.sweep.running import Progress

NOTHING = "-"
_LATENCIES = tuple(
    (f"{name}.{statistic}", f"{name.upper()} {statistic} ms")
    for name in ("lookup", "retrieve", "store")
    for statistic in ("p50", "p99")
)
_COLUMNS = (
    (REQUESTS_PER_S, "requests/s"),
    (GB_PER_S, "GB/s"),
    *_LATENCIES,
    (HIT_RATIO, "hit"),
    (IDEAL_RATIO, "ideal"),
    (LRU_RATIO, "ideal LRU"),
    (SHARE_VERIFIED, "verified"),
)
_RATIOS = (HIT_RATIO, IDEAL_RATIO, LRU_RATIO, SHARE_VERIFIED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What there is to tell: the rows, and how the sweep went."""

    rows: Sequence[Row]
    progress: Progress
    seed: int
    levels: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Tell whether every run was made, is proven, and is valid as a measurement."""
        return self.progress.complete and all(row.good for row in self.rows)


def run_line(run: Run, record: Record, progress: Progress) -> str:
    """Return the line about a run that was just made."""
    made = f"run {progress.made + progress.resumed} ({run.cell.label}, repetition {run.repetition})"
    if record.trouble:
        return f"{made}: {record.trouble}"
    figures = figures_of(record.report)
    rate = figures.values.get(REQUESTS_PER_S, 0.0)
    proven = "proven" if figures.proven else f"NOT PROVEN ({record.report['verdict']})"
    limit = f", limit {figures.limit}" if figures.limit else ""
    valid = "valid" if figures.valid else f"NOT VALID as a measurement{limit}"
    return f"{made}: {rate:.4g} requests/s, {proven}, {valid}, in {record.wall_s:.1f} s"


def text_table(told: Told) -> list[str]:
    """Return the table, a line a cell, and what must be known to read it."""
    lead = ((MAX_RATE, "max rate/s"),) if told.levels else ()
    columns = [column for column in (*lead, *_COLUMNS) if _is_told(column[0], told.rows)]
    names = list(dict.fromkeys(name for row in told.rows for name in row.cell.varied))
    head = [*names, *(title for _, title in columns), "proven", "valid"]
    body = [
        [
            *(_varied(row, name) for name in names),
            *(_shown(name, row.figures.get(name)) for name, _ in columns),
            "NO" if row.wrong else "yes",
            "NO" if row.doubtful else "yes",
        ]
        for row in told.rows
    ]
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    lines = [_line(head, widths), *(_line(cells, widths) for cells in body)]
    return [*lines, "", *_remarks(told)]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(text.rjust(width) for text, width in zip(cells, widths, strict=True)).rstrip()


def _is_told(name: str, rows: Sequence[Row]) -> bool:
    """A column that nobody has a figure for is left out; the requests a second never are."""
    return name in (REQUESTS_PER_S, MAX_RATE) or any(name in row.figures for row in rows)


def _varied(row: Row, name: str) -> str:
    return text_of(row.cell.varied[name]) or EMPTY if name in row.cell.varied else NOTHING


def _shown(name: str, value: Estimate | None) -> str:
    if value is None:
        return NOTHING
    write = _per_cent if name in _RATIOS else _number
    spread = "" if value.half_width is None else f"±{write(value.half_width, 2)}"
    return f"{write(value.mean, 4)}{spread}"


def _per_cent(value: float, _digits: int) -> str:
    return f"{value:.1%}"


def _number(value: float, digits: int) -> str:
    """Return a number with so many digits that count, and never with an exponent."""
    return f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"


def _remarks(told: Told) -> list[str]:
    most = max((row.repetitions for row in told.rows), default=0)
    if most > 1:
        means = f"Figures are means of up to {most} repetitions, with their {LEVEL}."
    else:
        means = "One repetition: no confidence interval (--repetitions 3 gives one)."
    levels = [f"Searched: the highest rate that keeps {' and '.join(told.levels)}."]
    notes = [f"  {text}" for row in told.rows for text in row.notes]
    wrong = [f"NOT PROVEN  {text}" for row in told.rows for text in row.wrong]
    doubtful = [f"NOT VALID   {text}" for row in told.rows for text in row.doubtful]
    return [means, *(levels if told.levels else []), *notes, *wrong, *doubtful]


def summary(told: Told) -> str:
    """Return the last line: what the table is worth, and the exit code."""
    wrong = sum(bool(row.wrong) for row in told.rows)
    doubtful = sum(bool(row.doubtful) for row in told.rows)
    progress = told.progress
    cells = f"{len(told.rows)} cells, {len(progress.outcomes)} of {progress.planned} runs"
    parts = [f"{wrong} not proven"] if wrong else []
    parts += [f"{doubtful} not valid as a measurement"] if doubtful else []
    parts += [] if progress.complete else ["interrupted: the same command goes on"]
    if told.good:
        return f"SWEEP: PASS, {cells}, all proven, all valid as measurements (exit 0)"
    return f"SWEEP: FAIL, {cells}: {', '.join(parts)} (exit 1)"


def document(told: Told) -> dict[str, Any]:
    """Return the table in JSON: estimates, and the figures of each run."""
    return {
        "format": FORMAT,
        "ok": told.good,
        "complete": told.progress.complete,
        "seed": told.seed,
        "slo": list(told.levels),
        "interval": LEVEL,
        "cells": [_cell_document(row, told.progress) for row in told.rows],
    }


def _cell_document(row: Row, progress: Progress) -> dict[str, Any]:
    ours = [outcome for outcome in progress.outcomes if outcome.run.cell.key == row.cell.key]
    return {
        "key": row.cell.key,
        "varied": dict(row.cell.varied),
        "load": dict(row.cell.load),
        "server": list(row.cell.server),
        "proven": not row.wrong,
        "valid": not row.doubtful,
        "wrong": list(row.wrong),
        "doubtful": list(row.doubtful),
        "figures": {name: asdict(found) for name, found in row.figures.items()},
        "runs": [
            {
                "repetition": outcome.run.repetition,
                "record": outcome.record.name,
                "exit_code": outcome.record.exit_code,
                "verdict": outcome.record.report.get("verdict"),
                "trouble": outcome.record.trouble,
                "values": _values(outcome.record.report),
                "found": None if outcome.found is None else asdict(outcome.found),
            }
            for outcome in ours
        ],
    }


def _values(report: Mapping[str, Any]) -> Mapping[str, float]:
    return figures_of(report).values if report else {}


def csv_table(told: Told) -> str:
    """Return the table with every figure, its half-width beside it; empty: there is none."""
    names = list(dict.fromkeys(name for row in told.rows for name in row.cell.varied))
    figures = sorted({name for row in told.rows for name in row.figures})
    columns = [column for name in figures for column in (name, f"{name}.half_width")]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, "key", "repetitions", *columns, "proven", "valid"])
    for row in told.rows:
        varied = [text_of(row.cell.varied.get(name, "")) for name in names]
        values = [cell for name in figures for cell in _csv_cells(row.figures.get(name))]
        proven, valid = not row.wrong, not row.doubtful
        writer.writerow([*varied, row.cell.key, row.repetitions, *values, proven, valid])
    return out.getvalue()


def _csv_cells(value: Estimate | None) -> tuple[str, str]:
    if value is None:
        return "", ""
    return repr(value.mean), "" if value.half_width is None else repr(value.half_width)

"""A comparison in JSON.  Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchserver.compare.comparing import Group
from benchserver.compare.estimate import LEVEL, RESAMPLES
from benchserver.compare.reading import Side
from benchserver.compare.rows import Row, change_of
from benchserver.compare.verdict import Told

FORMAT = 1


def document(told: Told, seed: int) -> dict[str, Any]:
    """Return all of it; changes are shares of A (0.1: +10 %), or differences if not `by_ratio`."""
    return {
        "format": FORMAT,
        "exit_code": told.exit_code,
        "summary": told.summary,
        "level": LEVEL,
        "seed": seed,
        "resamples": RESAMPLES,
        "sides": {side.name.lower(): _side(side) for side in told.sides},
        "allowed_differences": [asdict(found) for found in told.allowed],
        "remarks": list(told.remarks),
        "cells": [_cell(group) for group in told.comparison.groups],
        "figures": [_row(row) for row in told.comparison.rows],
        "left_out": list(told.comparison.left_out),
        "gates": [
            {"gate": judged.gate.text, "outcome": judged.outcome.value, "reason": judged.reason}
            for judged in told.gates
        ],
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "servers": list(dict.fromkeys(run.server for run in side.runs if run.server)),
        "runs": [
            {"file": run.name, "id": run.run_id, "figures": dict(run.figures.values)}
            for run in side.runs
        ],
    }


def _cell(group: Group) -> dict[str, Any]:
    return {
        "cell": group.cell.label,
        "pairs": group.pairs,
        "alternating": group.order.paired,
        "one_side_before_the_other": group.order.apart,
        "a": [run.name for run in group.a],
        "b": [run.name for run in group.b],
    }


def _row(row: Row) -> dict[str, Any]:
    found, figure = row.found, row.figure
    told: dict[str, Any] = {
        "cell": row.cell,
        "figure": figure.name,
        "unit": figure.unit,
        "better": figure.better,
        "by_ratio": figure.by_ratio,
        "a": row.a,
        "b": row.b,
        "finding": row.finding.value,
        "more_runs_for_5_percent": row.more_runs,
    }
    if found is None:
        return told | {"change": None, "low": None, "high": None, "p": None, "corrected_p": None}
    low, high = found.interval()
    return told | {
        "change": change_of(figure, found.difference),
        "low": change_of(figure, low),
        "high": change_of(figure, high),
        "p": found.p_value(),
        "corrected_p": row.corrected_p,
    }

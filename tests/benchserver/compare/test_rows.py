"""What a row shows."""

from __future__ import annotations

import math

import pytest

from benchserver.compare.estimate import Estimate
from benchserver.compare.figures import figure_called
from benchserver.compare.rows import Finding, Row, change_of, change_text, five_percent


def row(name: str, difference: float, corrected_p: float | None = 0.01) -> Row:
    """Return a row of a figure that has changed by so much."""
    found = Estimate(difference=difference, error=0.01, freedom=8, scatter=0.03, count=5)
    return Row(
        figure=figure_called(name),
        cell="",
        a=1.0,
        b=1.0,
        found=None if corrected_p is None else found,
        corrected_p=corrected_p,
        more_runs=3,
    )


@pytest.mark.parametrize(
    ("name", "difference", "corrected_p", "finding"),
    [
        ("retrieve.p99", 0.1, 0.05, Finding.WORSE),
        ("retrieve.p99", -0.1, 0.01, Finding.BETTER),
        ("retrieve.gb_per_s", -0.1, 0.01, Finding.WORSE),
        ("hit_ratio", 0.1, 0.01, Finding.BETTER),
        ("bytes.stored", 0.1, 0.01, Finding.CHANGED),
        ("retrieve.p99", 0.1, 0.051, Finding.NONE),
        ("retrieve.p99", 0.1, None, Finding.CANNOT_TELL),
    ],
)
def test_findings(
    name: str, difference: float, corrected_p: float | None, finding: Finding
) -> None:
    assert row(name, difference, corrected_p).finding is finding


def test_changes() -> None:
    latency, ratio = figure_called("retrieve.p99"), figure_called("hit_ratio")
    assert change_text(latency, math.log(1.15)) == "+15.0%"
    assert change_of(latency, math.log(0.5)) == pytest.approx(-0.5)
    assert change_text(ratio, -0.0123456) == "-0.0123"
    assert change_of(ratio, 0.2) == 0.2
    assert five_percent(latency, 10.0) == pytest.approx(math.log(1.05))
    assert five_percent(ratio, 0.5) == pytest.approx(0.025)
    assert change_text(latency, 1e6).startswith("+"), "no number is too large to show"

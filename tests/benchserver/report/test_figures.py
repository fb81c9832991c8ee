"""Figures in words: times, sizes, rates, and how long a run goes on."""

from __future__ import annotations

import pytest

from benchserver.check.verdict import Verdict
from benchserver.report.figures import (
    bytes_text,
    clock_text,
    ms_text,
    rate_text,
    seconds_left,
    share_done,
    value_text,
    verdict_text,
)
from tests.benchserver.report.snapshots import empty_snapshot, resource, snapshot


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0:00:00"),
        (0.9, "0:00:00"),
        (61, "0:01:01"),
        (86399, "23:59:59"),
        (86400 * 7 + 3661, "7d 01:01:01"),
    ],
)
def test_times(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (-(5 << 20), "-5.00 MiB"),
        (1023 << 10, "1.00 MiB"),
        (150 << 20, "150 MiB"),
        (12.34 * (1 << 30), "12.3 GiB"),
        (5000 * (1 << 40), "5000 TiB"),
    ],
)
def test_sizes(count: float, text: str) -> None:
    assert bytes_text(count) == text


def test_rates_and_milliseconds() -> None:
    assert [rate_text(rate) for rate in (0.0, 0.25, 64.06, 1234.5)] == [
        "0.00",
        "0.25",
        "64.1",
        "1234",
    ]
    assert (ms_text(None), ms_text(1.005)) == ("-", "1.00")


def test_what_is_in_use() -> None:
    assert value_text(resource("a")) == "1.00 GiB"
    assert value_text(resource("a", unit="count", value=24.0)) == "24"
    assert value_text(resource("a", value=None)) == "-"


def test_how_long_it_goes_on() -> None:
    """The first of two ends is the one."""
    assert seconds_left(empty_snapshot()) is None
    assert share_done(empty_snapshot()) is None
    assert seconds_left(snapshot()) == 16.0
    assert share_done(snapshot()) == 0.6
    assert seconds_left(snapshot(units_per_s=0.0)) is None
    by_both = snapshot(duration_s=200.0)
    assert seconds_left(by_both) == 7.5
    assert share_done(by_both) == 192.5 / 200
    late = snapshot(duration_s=100.0, total_units=None)
    assert (seconds_left(late), share_done(late)) == (0.0, 1.0)


def test_the_verdict_before_the_end() -> None:
    assert verdict_text(empty_snapshot()) == "nothing proven yet"
    assert verdict_text(snapshot()) == "nothing wrong so far"
    assert verdict_text(snapshot(verdict=Verdict.UNKNOWN)) == "not proven so far"
    assert verdict_text(empty_snapshot(verdict=Verdict.INVALID)) == "FAILED"

"""Sizes, times and bandwidths: every unit, and each text that is none."""

from __future__ import annotations

import pytest

from benchserver.breakeven.quantities import (
    BANDWIDTH,
    SIZE,
    TIME,
    TIME_OR_NONE,
    Quantity,
    bandwidth_text,
    bytes_text,
    ms_text,
    read,
)
from benchserver.errors import UsageError


@pytest.mark.parametrize(
    ("text", "quantity", "value"),
    [
        ("1GiB", SIZE, 1073741824.0),
        ("64MiB", SIZE, 67108864.0),
        ("500MB", SIZE, 500e6),
        ("1.5 KiB", SIZE, 1536.0),
        ("2kB", SIZE, 2000.0),
        ("1B", SIZE, 1.0),
        ("3TB", SIZE, 3e12),
        ("120ms", TIME, 0.12),
        ("1.5s", TIME, 1.5),
        ("500us", TIME, 0.0005),
        ("1ns", TIME, 1e-9),
        ("0ms", TIME_OR_NONE, 0.0),
        ("24GiB/s", BANDWIDTH, 24 * 1073741824.0),
        ("12.5GB/s", BANDWIDTH, 12.5e9),
        ("100Gbit/s", BANDWIDTH, 12.5e9),
        ("8kbit/s", BANDWIDTH, 1000.0),
    ],
)
def test_what_is_read(text: str, quantity: Quantity, value: float) -> None:
    assert read("--x", text, quantity) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "quantity", "expected"),
    [
        ("1", SIZE, "--x '1': expected a number with its unit, such as 1GiB, "),
        ("", SIZE, "--x '': expected a number with its unit"),
        ("-1GiB", SIZE, "--x '-1GiB': expected a number with its unit"),
        ("nan", SIZE, "--x 'nan': expected a number"),
        ("nanms", TIME, "--x 'nanms': expected a number"),
        ("infGiB/s", BANDWIDTH, "expected a number"),
        ("1e9GiB", SIZE, "expected a number"),
        ("1_0GiB", SIZE, "expected a number"),
        ("١GiB", SIZE, "expected a number"),
        ("1GiB\n2", SIZE, "expected a number"),
        ("9" * 400 + "B", SIZE, "expected a number"),
        ("1gib", SIZE, "no such unit here; known: B, kB, MB, GB, "),
        ("1Gb/s", BANDWIDTH, "no such unit here"),
        ("1GiB", BANDWIDTH, "--x '1GiB': no such unit here; known: B/s, "),
        ("1GiB/s", SIZE, "no such unit here"),
        ("1min", TIME, "no such unit here; known: ns, us, ms, s, as in 120ms"),
        ("0GiB", SIZE, "out of range, expected 1 B to 1024 PiB"),
        ("0GiB/s", BANDWIDTH, "out of range, expected 1 B/s to 1024 PiB/s"),
        ("0ms", TIME, "out of range, expected 1 ns to 1000000 s"),
        ("99999999s", TIME_OR_NONE, "out of range, expected 0 s to 1000000 s"),
        ("2000PiB", SIZE, "out of range"),
    ],
)
def test_what_is_refused(text: str, quantity: Quantity, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        read("--x", text, quantity)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_how_they_are_shown() -> None:
    assert bytes_text(1073741824) == "1 GiB"
    assert bytes_text(1536) == "1.5 KiB"
    assert bytes_text(1023) == "1023 B"
    assert bytes_text(2048 * 1024.0**5) == "2048 PiB"
    assert bandwidth_text(14253210053.1) == "13.27 GiB/s"
    assert ms_text(0.2946666) == "294.7 ms"

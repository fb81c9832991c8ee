"""A run that goes on, in plain lines."""

from __future__ import annotations

from benchserver.line import BAD, GOOD
from benchserver.report.now import now_line, now_lines
from tests.benchserver.report.snapshots import bad_snapshot, empty_snapshot, snapshot


def test_one_line_on_a_good_run() -> None:
    assert now_line(snapshot()) == (
        "[0:03:12] 60 of 100 sequences proven, 0 failed, 0 unproven, 2.50/s; "
        "p99 ms: STORE 2.50, LOOKUP warm 0.75; hits 75.0%; server memory 1.00 GiB; "
        "nothing wrong so far"
    )


def test_one_line_on_a_bad_run() -> None:
    assert now_line(bad_snapshot(total_units=None)) == (
        "[0:03:12] 60 sequences proven, 3 failed, 1 unproven, 2.50/s; hits 75.0%; "
        "server memory 1.00 GiB grows; nothing was heard for 12 s; connected again 2 times; FAILED"
    )


def test_one_line_before_anything_is_known() -> None:
    assert now_line(empty_snapshot()) == (
        "[0:00:00] 0 sequences proven, 0 failed, 0 unproven, 0.00/s; nothing proven yet"
    )


def test_a_summary_of_a_good_run() -> None:
    lines = now_lines(snapshot())
    assert [line.text for line in lines] == [
        "After 0:03:12 (running, 60% done), about 0:00:16 left; "
        "it is 2026-12-01T12:00:00.000+00:00",
        "Verdict so far: nothing wrong so far",
        "Work: 60 of 100 sequences proven, 0 failed, 0 unproven, 2.50/s; 480 calls",
        "LOOKUP found 150 of 200 chunks (75.0%)",
        "last minute [ms]       count    errors       1/s       p50       p99     p99.9"
        "   run p50   run p99",
        "STORE                     10         0      5.00      1.00      2.50      3.00"
        "      1.25     20.00",
        "LOOKUP warm               10         0      5.00      1.00      0.75      3.00"
        "      1.25     20.00",
        "Throughput: STORE 1.50 GB/s",
        "Flat: server memory 1.00 GiB",
    ]
    assert lines[1].style == GOOD


def test_a_summary_of_a_bad_run() -> None:
    lines = now_lines(bad_snapshot())
    assert [line.text for line in lines if line.style == BAD] == [
        "Verdict so far: FAILED",
        "Grows: server memory 1.00 GiB (4.1 MiB an hour, at most 1 may be)",
        "Nothing was heard for 12 s",
        "Connected again 2 times",
        "Findings that are not good, by check: content 3, store 1",
        "  seq=7: content: rank=0 layer 3: bytes differ",
        "  seq=8: store: no answer",
    ]
    assert "Not measured: server locks -" in [line.text for line in lines]


def test_a_summary_before_anything_is_known() -> None:
    assert [line.text for line in now_lines(empty_snapshot())] == [
        "After 0:00:00 (starting); it is 2026-12-01T12:00:00.000+00:00",
        "Verdict so far: nothing proven yet",
        "Work: 0 sequences proven, 0 failed, 0 unproven, 0.00/s; 0 calls",
    ]

"""What a live view shows in windows of every size."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from benchserver.check.verdict import Verdict
from benchserver.line import BAD, GOOD, PLAIN, Line
from benchserver.monitor.snapshot import HitsNow, OperationNow, ResourceNow, Snapshot
from benchserver.report.frame import Row, Window, cropped, frame
from benchserver.report.now import now_line, now_lines
from benchserver.report.trends import Trends
from tests.benchserver.report.snapshots import bad_snapshot, empty_snapshot, resource, snapshot


def shown(now: Snapshot, columns: int, rows: int, **window: Any) -> list[str]:
    trends = Trends()
    for _ in range(20):
        trends.take(now)
    made = frame(now, trends, Window(columns=columns, rows=rows, **window))
    return [text_of(row) for row in made]


def text_of(row: Row) -> str:
    return "".join(piece.text for piece in row)


def test_a_wide_window_shows_all() -> None:
    assert shown(snapshot(), 100, 24) == [
        "── running " + "─" * 89,
        "nothing wrong so far   60 of 100 sequences proven, 0 failed, 0 unproven",
        "0:03:12 since it began, about 0:00:16 left  " + "━" * 24 + "─" * 16 + " 60%",
        "2.50 sequences/s, 480 calls, STORE 1.50 GB/s".ljust(80) + "█" * 20,
        "hits 75.0%, 150 of 200 chunks that LOOKUP asked for",
        "last minute    count   errors      1/s      p50      p99    p99.9  ms",
        "STORE             10        0     5.00     1.00     2.50     3.00".ljust(80) + "█" * 20,
        "LOOKUP warm       10        0     5.00     1.00     0.75     3.00".ljust(80) + "█" * 20,
        "server memory  1.00 GiB, flat".ljust(80) + "▄" * 20,
    ]
    assert shown(snapshot(), 4000, 24)[0] == "── running " + "─" * 109


def test_a_terminal_without_blocks() -> None:
    rows = shown(bad_snapshot(), 60, 24, ascii_only=True)
    assert all(row.isascii() for row in rows)
    assert rows[0] == "-- running " + "-" * 49


def test_what_is_wrong_is_shown_first() -> None:
    assert shown(bad_snapshot(), 40, 5) == [
        "FAILED   60 proven, 3 failed, 1 unproven",
        "0:03:12, 0:00:14 left  ━━━━━━━───── 64%",
        "Nothing was heard for 12 s",
        "Connected again 2 times",
        "seq=8: store: no answer",
    ]
    rows = shown(bad_snapshot(), 100, 24)
    assert rows[-3:] == [
        "failed: content 3, store 1",
        "seq=7: content: rank=0 layer 3: bytes differ",
        "seq=8: store: no answer",
    ]
    assert any(row.startswith("server memory  1.00 GiB, grows (4.1 MiB") for row in rows)


@pytest.mark.parametrize(
    ("now", "rows"),
    [
        (snapshot(), ["60 proven, 0 failed", "0:03:12 60%", "2.50 sequences/s", "hits 75.0%"]),
        (
            bad_snapshot(reconnects=0, stalled_s=0.0),
            ["FAILED, 3 failed", "0:03:12 64%", "server memory grows", "seq=8: store: no..."],
        ),
        (empty_snapshot(), ["nothing proven yet", "0:00:00", "0.00 sequences/s"]),
    ],
)
def test_a_window_of_twenty_columns_and_five_rows(now: Snapshot, rows: list[str]) -> None:
    """Less the last column, which a row may break, and the row above the view."""
    made = shown(now, 19, 4)
    assert [row for row in made if not row.startswith("──")] == rows


def test_what_does_not_grow_and_is_no_memory_shares_a_row() -> None:
    now = snapshot(
        resources=(
            resource("our memory", side="ours", value=2.5e6),
            resource("our threads", side="ours", unit="count", value=7.0),
            resource("server threads", unit="count", value=6.0),
            resource("server locks", unit="count", value=4.0, verdict="grows"),
            resource("server sessions", unit="count", value=0.0),
            resource("shared memory", value=0.0),
            resource("server memory", value=None, verdict="not measured"),
        )
    )
    rows = shown(now, 70, 30)[8:]
    assert [row.partition("   ")[0] for row in rows] == [
        "our memory  2.38 MiB, flat",
        "server locks  4, grows",
        "held: our threads 7, server threads 6",
    ]


def test_no_row_says_good_where_it_has_no_room_for_bad() -> None:
    for columns in range(1, 60):
        row = shown(bad_snapshot(), columns, 1)[0]
        assert row.startswith("FAILED"[: max(columns - 3, 0)] if columns < 6 else "FAILED")


def test_pieces_are_cut_at_the_edge() -> None:
    row = (Line("abc", GOOD), Line("defgh", BAD), Line("ijk", PLAIN))
    assert cropped(row, 11) == row
    assert [text_of(cropped(row, columns)) for columns in (10, 7, 5, 2, 0)] == [
        "abcdefgh..",
        "abcd...",
        "abc..",
        "..",
        "",
    ]
    # Wide characters, and what moves the cursor.
    assert text_of(cropped((Line("漢字漢字"),), 7)) == "漢字..."
    assert text_of(cropped((Line("a\x1b[2Jb\nc"),), 20)) == "a?[2Jb?c"


def anything(kind: type, **known: Any) -> st.SearchStrategy[Any]:
    figures = st.floats(0, 1e15) | st.integers(0, 1 << 62)
    strategies: dict[str, st.SearchStrategy[Any]] = {
        field.name: st.none() | figures if "None" in str(field.type) else figures
        for field in fields(kind)
    }
    texts = st.text(max_size=30)
    strategies |= dict.fromkeys(("name", "time", "unit", "reason", "phase"), texts)
    given_names = {field.name for field in fields(kind)}
    return st.builds(kind, **{n: s for n, s in (strategies | known).items() if n in given_names})


SNAPSHOTS = anything(
    Snapshot,
    verdict=st.sampled_from(Verdict),
    operations=st.lists(anything(OperationNow), max_size=4).map(tuple),
    resources=st.lists(
        anything(
            ResourceNow,
            unit=st.sampled_from(["bytes", "count"]),
            side=st.just("ours"),
            verdict=st.sampled_from(["flat", "grows"]),
        ),
        max_size=4,
    ).map(tuple),
    hits=st.none() | anything(HitsNow),
    gb_per_s=st.dictionaries(st.text(max_size=9), st.floats(0, 1e6), max_size=2),
    failures=st.lists(st.text(max_size=50), max_size=4).map(tuple),
    failed_checks=st.dictionaries(st.text(max_size=9), st.integers(0, 1 << 40), max_size=3),
)


@settings(max_examples=30)
@given(
    now=SNAPSHOTS, columns=st.integers(-1, 200), rows=st.integers(-1, 40), ascii_only=st.booleans()
)
def test_any_run_fits_any_window(now: Snapshot, columns: int, rows: int, ascii_only: bool) -> None:
    trends = Trends()
    trends.take(snapshot(resources=(resource("other"),)))
    trends.take(now)
    made = frame(now, trends, Window(columns=columns, rows=rows, ascii_only=ascii_only))
    assert len(made) <= max(rows, 0)
    now_lines(now)
    now_line(now)
    for row in made:
        assert cell_len(text_of(row)) <= max(columns, 0)
        assert text_of(row).isprintable()

"""Timelines against the plain list of what was counted, at any length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.stats.timeline import MOST_SLOTS, Timeline, TimelineRow

MS = 1_000_000
S = 1_000 * MS
WEEK_S = 7 * 86_400


def test_nothing_counted() -> None:
    assert Timeline().rows() == ()


def test_rows_are_seconds_and_an_empty_one_is_a_row() -> None:
    line = Timeline()
    line.add(0, 5 * MS, 100)
    line.add(S - 1, 5 * MS, 20)
    line.add(2 * S, 10 * MS, 3)
    line.add_error(2 * S + 1, 10 * MS)
    first, empty, last = line.rows()
    assert first == TimelineRow(
        at_s=0,
        length_s=1,
        requests=2,
        errors=0,
        moved_bytes=120,
        p50_ms=5.0,
        p99_ms=5.0,
        max_ms=5.0,
    )
    assert (empty.at_s, empty.requests, empty.errors, empty.moved_bytes) == (1, 0, 0, 0)
    assert (empty.p50_ms, empty.p99_ms, empty.max_ms) == (None, None, None)
    assert (last.at_s, last.requests, last.errors, last.moved_bytes) == (2, 2, 1, 3)
    assert last.max_ms == 10.0


def test_a_freeze_is_seen_in_the_second_in_which_it_ends() -> None:
    line = Timeline()
    for n in range(300):
        line.add(n * S // 100, 20 * MS)
    line.add(2 * S, 1_000 * MS)
    assert [row.max_ms for row in line.rows()] == [20.0, 20.0, 1_000.0]
    assert [row.p50_ms for row in line.rows()] == [pytest.approx(20.0, rel=1e-2)] * 3


def test_before_the_origin_there_is_nothing() -> None:
    with pytest.raises(ValueError, match="-1 ns lies before the origin"):
        Timeline().add(-1, MS)


def test_neighbours_merge_when_there_are_too_many() -> None:
    line = Timeline(most_slots=4)
    for second in range(5):
        line.add(second * S, MS, 1)
    assert [(row.at_s, row.length_s, row.requests) for row in line.rows()] == [
        (0, 2, 2),
        (2, 2, 2),
        (4, 2, 1),
    ]
    line.add_error(100 * S, MS)
    rows = line.rows()
    assert [(row.at_s, row.length_s, row.requests) for row in rows if row.requests] == [
        (0, 32, 5),
        (96, 32, 1),
    ]
    assert len(rows) == 4


def test_a_week_takes_no_more_than_ten_minutes() -> None:
    line = Timeline()
    for second in range(0, WEEK_S, 600):
        line.add(second * S, MS)
    rows = line.rows()
    assert MOST_SLOTS // 2 < len(rows) <= MOST_SLOTS
    assert sum(row.requests for row in rows) == WEEK_S // 600
    assert rows[0].length_s == 1024


ENTRIES = st.lists(
    st.tuples(st.integers(0, 100) | st.integers(0, 10_000), st.booleans(), st.integers(0, 1 << 30)),
    max_size=30,
)


@given(ENTRIES, ENTRIES, st.integers(1, 12))
def test_two_merged_are_as_one_that_counted_all(
    first: list[tuple[int, bool, int]], second: list[tuple[int, bool, int]], most: int
) -> None:
    one, other, both = (Timeline(most_slots=most) for _ in range(3))
    for entries, line in ((first, one), (second, other)):
        for at_ms, good, nbytes in entries:
            for each in (line, both):
                if good:
                    each.add(at_ms * MS, at_ms * MS, nbytes)
                else:
                    each.add_error(at_ms * MS, at_ms * MS)
    untouched = other.rows()
    one.merge(other)
    assert one.rows() == both.rows()
    assert other.rows() == untouched
    assert sum(row.moved_bytes for row in both.rows()) == sum(
        nbytes for _, good, nbytes in [*first, *second] if good
    )
    assert len(both.rows()) <= most


def test_it_says_about_how_much_memory_it_takes() -> None:
    timeline = Timeline(most_slots=4)
    assert timeline.nbytes == 0
    for second in range(9):
        timeline.add(second * 1_000_000_000, 1)
    assert 0 < timeline.nbytes <= 4 * 16_000

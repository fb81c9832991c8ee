"""Columns of time: they merge when there are too many, and lose nothing."""

from __future__ import annotations

import pytest

from benchserver.stats.overtime import Columns, lower_end_ms, row_of

S = 1_000_000_000


def total(columns: Columns, length_ns: int) -> int:
    return sum(count for _, _, count in columns.counts(length_ns))


def test_rows_are_a_quarter_of_a_power_of_two_and_begin_at_a_microsecond() -> None:
    assert row_of(0) == row_of(1000) < row_of(1200)
    for latency_ns in (1000, 5_000_000, 3_600 * S):
        row = row_of(latency_ns)
        assert lower_end_ms(row) <= latency_ns / 1e6 < lower_end_ms(row + 1)
        assert lower_end_ms(row + 1) <= lower_end_ms(row) * 1.26


def test_a_week_takes_no_more_columns_than_there_may_be() -> None:
    columns, hours = Columns(5 * S, most=10), 7 * 24
    for hour in range(hours):
        columns.add(5 * S + hour * 3600 * S, row=hour % 3)
    counts = columns.counts(columns.length_ns)
    assert len({number for number, _, _ in counts}) <= 10
    assert total(columns, columns.length_ns) == hours
    assert columns.length_ns == 65536 * S


def test_counts_are_shown_by_longer_columns_too() -> None:
    columns = Columns(0)
    for second in range(5):
        columns.add(second * S, row=1, amount=10)
    assert columns.counts(S) == [(second, 1, 10) for second in range(5)]
    assert columns.counts(2 * S) == [(0, 1, 20), (1, 1, 20), (2, 1, 10)]


@pytest.mark.parametrize("longer", [0, 1])
def test_merging_counts_all_whichever_has_the_longer_columns(longer: int) -> None:
    both = [Columns(0, most=4), Columns(0, most=4)]
    for second in range(9):
        both[longer].add(second * S, row=2)
    both[1 - longer].add(0, row=2)
    both[0].merge(both[1])
    assert total(both[0], both[0].length_ns) == 10
    assert both[0].length_ns == 4 * S


def test_a_column_says_until_when_it_is_that_of_now() -> None:
    columns = Columns(S)
    assert not columns.counts_any
    column, until_ns = columns.column(2 * S)
    column[4] = 1
    assert (until_ns, columns.counts(S)) == (3 * S, [(1, 4, 1)])
    assert columns.counts_any

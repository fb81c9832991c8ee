"""What the baseline alone is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchserver.errors import UsageError
from benchserver.scenarios.baseline.config import BaselineConfig

ASKED = BaselineConfig(
    start=3,
    end=6,
    interval_s=0.25,
    expect_warm=False,
    visible_within_s=4.5,
    max_dropped=0.0,
    partial_every=6,
    partial_skip="chunks",
    concurrency=1,
)


def test_turns_are_the_numbers_of_all_sequences() -> None:
    assert ASKED.turns == range(3, 6)
    forever = replace(ASKED, end=None).turns
    assert forever.start == 3
    assert len(forever) > 1 << 39


def test_units_are_counted_unless_only_somebody_stops_them() -> None:
    assert ASKED.units == 3
    assert replace(ASKED, end=None).units is None


@pytest.mark.parametrize("end", [0, 2, 3])
def test_no_sequence_is_refused(end: int) -> None:
    with pytest.raises(UsageError, match=f"^--end {end} must be greater than --start 3: sequences"):
        replace(ASKED, end=end).check()
    replace(ASKED, end=4).check()


def test_each_client_has_every_so_many_sequences_and_turns_of_its_own() -> None:
    asked = replace(ASKED, start=3, end=12, concurrency=4)
    assert [list(asked.turns_of(client)) for client in range(4)] == [
        [3, 7, 11],
        [4, 8],
        [5, 9],
        [6, 10],
    ]
    assert [asked.turn_of(seq) for seq in asked.turns_of(0)] == [3, 4, 5]
    assert {asked.turn_of(seq) for seq in (3, 4, 5, 6)} == {3}
    assert [replace(asked, concurrency=1).turn_of(seq) for seq in range(3, 12)] == [*range(3, 12)]


def test_there_are_no_more_clients_than_sequences() -> None:
    assert replace(ASKED, concurrency=8).clients == 3
    assert replace(ASKED, concurrency=8, end=None).clients == 8
    assert ASKED.in_flight == 1

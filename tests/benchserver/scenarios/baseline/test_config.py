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

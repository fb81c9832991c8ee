"""The last minute, and nothing older."""

from __future__ import annotations

import pytest

from benchserver.stats.rolling import Rolling, RollingSummary

S = 1_000_000_000
MS = 1_000_000


def test_before_anything_has_ended_there_is_no_percentile() -> None:
    nothing = RollingSummary(count=0, rate_per_s=0.0, p50_ms=None, p99_ms=None, p999_ms=None)
    assert Rolling(0).summary(0) == Rolling(0).summary(5 * S) == nothing


def test_percentiles_are_those_of_what_ended_to_3_percent_and_never_too_low() -> None:
    rolling = Rolling(7 * S)
    for number in range(1000):
        rolling.add(7 * S + number * S // 100, (number + 1) * MS)
    found = rolling.summary(17 * S)
    assert (found.count, found.rate_per_s) == (1000, 100.0)
    for seen, least in ((found.p50_ms, 500), (found.p99_ms, 990), (found.p999_ms, 999)):
        assert seen is not None
        assert least <= seen <= least * 1.032


def test_what_is_older_than_a_minute_is_gone_and_so_is_its_time() -> None:
    rolling = Rolling(0)
    for second in range(300):
        rolling.add(second * S, MS if second < 200 else 9 * MS)
    found = rolling.summary(300 * S)
    assert found.rate_per_s == pytest.approx(1.0)
    assert found.p50_ms == pytest.approx(9, rel=0.04)
    assert rolling.summary(400 * S).count == 0


def test_a_slot_says_until_when_it_is_that_of_now() -> None:
    rolling = Rolling(2 * S)
    slot, until_ns = rolling.slot(3 * S)
    assert until_ns == 7 * S
    slot[40] = 3
    assert rolling.summary(6 * S).count == 3

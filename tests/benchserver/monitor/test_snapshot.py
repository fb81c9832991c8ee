"""A run at one moment, as values."""

from __future__ import annotations

from benchserver.monitor.snapshot import HitsNow


def test_a_share_of_nothing_is_not_known() -> None:
    assert HitsNow(asked_chunks=0, hit_chunks=0).ratio is None
    assert HitsNow(asked_chunks=8, hit_chunks=2).ratio == 0.25

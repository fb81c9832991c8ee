"""Ranks take the visible devices in turn."""

from __future__ import annotations

import pytest

from benchserver.kv.placement import device_numbers


@pytest.mark.parametrize(
    ("ranks", "devices", "numbers"),
    [(1, 1, [0]), (1, 8, [0]), (4, 1, [0, 0, 0, 0]), (5, 2, [0, 1, 0, 1, 0]), (2, 8, [0, 1])],
)
def test_device_numbers(ranks: int, devices: int, numbers: list[int]) -> None:
    assert device_numbers(ranks, devices) == numbers

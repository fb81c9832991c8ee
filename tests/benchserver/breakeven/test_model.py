"""The model: the figures of the document, by hand, and what holds for any of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.breakeven.model import Hit, Turn

GIB = 1024.0**3
LARGE = Hit(payload_bytes=GIB, saved_s=0.12, fixed_s=0.003, device_bytes_per_s=24 * GIB)


def test_a_slow_network_is_a_loss() -> None:
    row = LARGE.over(4 * GIB)
    # 3 + 250 + 41.666...
    assert round(row.serial_s * 1e3, 1) == 294.7
    assert row.pipelined_s * 1e3 == pytest.approx(253.0)
    assert row.serial_gain_s * 1e3 == pytest.approx(120 - 294.6666667)
    assert row.pipelined_gain_s * 1e3 == pytest.approx(120 - 253)


def test_a_fast_network_is_a_gain() -> None:
    row = LARGE.over(24 * GIB)
    assert round(row.serial_s * 1e3, 1) == 86.3
    assert row.pipelined_s * 1e3 == pytest.approx(3 + 41.6666667)
    assert row.serial_gain_s > 0
    assert row.pipelined_gain_s > row.serial_gain_s


def test_a_network_that_is_faster_than_the_device_does_not_hide_it() -> None:
    assert LARGE.over(1000 * GIB).pipelined_s == LARGE.local.pipelined_s
    assert LARGE.local.serial_s == LARGE.local.pipelined_s
    assert LARGE.local.serial_s * 1e3 == pytest.approx(3 + 41.6666667)


def test_where_it_turns() -> None:
    # 1 GiB in 120 - 3 ms, and in what is left of them after the leg to the device.
    assert LARGE.turns(pipelined=True).network_bytes_per_s == pytest.approx(GIB / 0.117)
    serial = LARGE.turns(pipelined=False)
    assert serial.network_bytes_per_s == pytest.approx(GIB / (0.117 - 1 / 24))
    assert serial.why_never == ""


@pytest.mark.parametrize("fixed_s", [0.01, 0.0075])
def test_a_fixed_cost_of_what_is_saved_is_never_won_back(fixed_s: float) -> None:
    small = Hit(
        payload_bytes=GIB / 16, saved_s=0.0075, fixed_s=fixed_s, device_bytes_per_s=24 * GIB
    )
    for pipelined in (False, True):
        turn = small.turns(pipelined=pipelined)
        assert turn == Turn(why_never=f"the fixed cost alone is {fixed_s * 1e3:.1f} ms")


@pytest.mark.parametrize("saved_s", [0.04, 0.003 + 1 / 24])
def test_a_device_that_is_too_slow_is_no_matter_of_the_network(saved_s: float) -> None:
    slow = Hit(payload_bytes=GIB, saved_s=saved_s, fixed_s=0.003, device_bytes_per_s=24 * GIB)
    for pipelined in (False, True):
        never = slow.turns(pipelined=pipelined).why_never
        assert never == "the fixed cost and the leg to the device alone take 44.7 ms"


positive = st.floats(1e-3, 1e3)


@given(positive, positive, st.floats(0, 1e3), positive)
def test_at_the_turn_nothing_is_won_or_lost_and_it_is_the_only_one(
    payload: float, saved: float, fixed: float, device: float
) -> None:
    hit = Hit(payload_bytes=payload, saved_s=saved, fixed_s=fixed, device_bytes_per_s=device)
    for name in ("serial", "pipelined"):
        turn = hit.turns(pipelined=name == "pipelined")
        if turn.why_never:
            assert getattr(hit.local, f"{name}_gain_s") <= 0
            continue
        at = turn.network_bytes_per_s

        def gain_s(network: float, name: str = name) -> float:
            value: float = getattr(hit.over(network), f"{name}_gain_s")
            return value

        # Where the device takes nearly all of what is saved, the last digits decide.
        if hit.saved_s - hit.local.serial_s > 1e-6 * hit.saved_s:
            assert gain_s(at) == pytest.approx(0, abs=1e-6 * saved)
            assert gain_s(at / 2) < 0 < gain_s(at * 2)

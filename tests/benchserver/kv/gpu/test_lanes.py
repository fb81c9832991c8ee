"""Lanes: how many there are, and that no two threads have the same one."""

from __future__ import annotations

import threading

import pytest

from benchserver.kv.gpu.lanes import MAX_LANES, SLICE_BYTES, Lane, Lanes


def test_a_lane_that_was_given_back_is_lent_again() -> None:
    lanes = Lanes()
    with lanes.borrowed() as first:
        pass
    with lanes.borrowed() as again, lanes.borrowed() as second:
        assert again is first
        assert second is not first


def test_no_more_lanes_than_said_are_lent_at_a_time() -> None:
    lanes, seen, release = Lanes(2), list[Lane](), threading.Event()
    lent = threading.Semaphore(0)

    def borrow() -> None:
        with lanes.borrowed() as lane:
            seen.append(lane)
            lent.release()
            release.wait(30)

    threads = [threading.Thread(target=borrow) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert lent.acquire(timeout=30)
    assert lent.acquire(timeout=30)
    assert not lent.acquire(timeout=0.05)
    assert seen[0] is not seen[1]
    release.set()
    for thread in threads:
        thread.join(30)
    assert len(seen) == 5
    assert len(set(map(id, seen))) == 2


def test_a_lane_comes_back_after_an_error() -> None:
    lanes = Lanes(1)
    for _ in range(3):
        with pytest.raises(KeyError), lanes.borrowed():
            raise KeyError


def test_all_pools_together_pin_half_a_gib() -> None:
    assert MAX_LANES * SLICE_BYTES == 512 << 20


@pytest.mark.torch
def test_a_buffer_grows_and_is_kept() -> None:
    import torch

    lane, device = Lane(), torch.device("cpu")
    lane.prepare(device, 100)
    first = lane._host
    lane.prepare(device, 50)
    assert lane._host is first
    lane.prepare(device, 200)
    assert lane._host.numel() == 200
    assert lane.stream is None

"""Clients that left: when they are unmapped, in what thread, and what becomes of the others."""

from __future__ import annotations

import threading
from concurrent.futures import wait

import pytest

from benchserver.refserver.gpu.leaving import Leaving
from benchserver.refserver.refusal import RefusalError

WITHIN_S = 30.0


def test_unmapping_is_done_beside_whoever_asks_for_it() -> None:
    release, names = threading.Event(), list[str]()
    leaving = Leaving(lambda: True)

    def unmap() -> None:
        assert release.wait(WITHIN_S)
        names.append(threading.current_thread().name)

    gone = [leaving.add(lambda: True, unmap) for _ in range(3)]
    assert not wait(gone, 0.05).done
    assert leaving.count == 3
    release.set()
    for future in gone:
        future.result(WITHIN_S)
    assert leaving.close(lambda: names.append("last"), WITHIN_S)
    assert names == ["refserver-unmap_0"] * 3 + ["last"]


def test_nothing_is_unmapped_while_any_stream_is_stuck() -> None:
    calm: list[bool] = []
    leaving = Leaving(lambda: bool(calm))
    gone = leaving.add(lambda: True, lambda: None)
    assert not wait([gone], 0.05).done
    leaving.retry()
    assert not wait([gone], 0.05).done
    calm.append(True)
    leaving.retry()
    gone.result(WITHIN_S)
    assert leaving.count == 0
    assert leaving.close(lambda: None, WITHIN_S)


def test_one_whose_work_has_not_ended_waits_and_others_go() -> None:
    late = threading.Event()
    order: list[str] = []
    leaving = Leaving(lambda: True)
    first = leaving.add(late.is_set, lambda: order.append("first"))
    leaving.add(lambda: True, lambda: order.append("second")).result(WITHIN_S)
    late.set()
    leaving.retry()
    first.result(WITHIN_S)
    assert order == ["second", "first"]
    assert leaving.close(lambda: None, WITHIN_S)


def test_a_moment_late_is_early_enough() -> None:
    looks: list[bool] = [False, False, True]
    leaving = Leaving(lambda: True)
    leaving.add(lambda: looks.pop(0), lambda: None).result(WITHIN_S)
    assert leaving.close(lambda: None, WITHIN_S)


def test_on_a_device_that_failed_nothing_is_unmapped() -> None:
    def failed() -> bool:
        raise RefusalError("a stream of this server: CUDA error: an illegal memory access")

    leaving, unmapped = Leaving(lambda: True), list[int]()
    gone = leaving.add(failed, lambda: unmapped.append(1))
    other = leaving.add(lambda: True, lambda: unmapped.append(2))
    other.result(WITHIN_S)
    assert not gone.done()
    assert not leaving.close(lambda: unmapped.append(3), WITHIN_S)
    assert unmapped == [2]


def test_an_error_of_one_keeps_no_other() -> None:
    def fail() -> None:
        raise KeyError("a bug")

    leaving = Leaving(lambda: True)
    first = leaving.add(lambda: True, fail)
    leaving.add(lambda: True, lambda: None).result(WITHIN_S)
    with pytest.raises(KeyError):
        first.result(WITHIN_S)
    assert leaving.close(lambda: None, WITHIN_S)


def test_a_thread_that_is_stuck_is_given_up() -> None:
    release, done = threading.Event(), list[str]()
    leaving = Leaving(lambda: True)
    gone = leaving.add(lambda: True, lambda: assert_(release.wait(WITHIN_S)))
    assert not leaving.close(lambda: done.append("last"), 0.05)
    assert not done
    release.set()
    gone.result(WITHIN_S)


def assert_(holds: bool) -> None:
    assert holds

"""CPU time of this thread and of the process; the CPUs that both may use."""

from __future__ import annotations

import os
import threading

import pytest

from benchserver.environment import usage
from benchserver.environment.container import ContainerLimits
from benchserver.environment.usage import CpuTimes, cpu_times, usable_cpus


def burn(until_s: float) -> None:
    """Use the CPU of the calling thread, which takes as long as the machine lets it."""
    begin = cpu_times()
    while cpu_times().since(begin).thread_s < until_s:
        pass


def test_a_thread_has_its_own_time_and_the_process_all() -> None:
    before = cpu_times()
    burn(0.02)
    other = threading.Thread(target=burn, args=(0.05,))
    other.start()
    other.join()
    used = cpu_times().since(before)
    assert 0.02 <= used.thread_s < used.process_s
    assert used.process_s >= 0.07
    assert used.wall_s > 0


def test_a_difference_is_that_of_every_clock() -> None:
    begin = CpuTimes(wall_s=1, thread_s=2, process_s=4)
    end = CpuTimes(wall_s=2, thread_s=5, process_s=9)
    assert end.since(begin) == CpuTimes(wall_s=1, thread_s=3, process_s=5)


@pytest.mark.parametrize(("quota", "usable"), [(None, 3.0), (8.0, 3.0), (0.5, 0.5)])
def test_cpus_are_those_of_the_affinity_or_of_the_quota(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, usable: float
) -> None:
    limits = ContainerLimits(cpus=quota, memory_bytes=None, processes=None)
    monkeypatch.setattr(usage, "container_limits", lambda: limits)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 5})
    assert usable_cpus() == usable

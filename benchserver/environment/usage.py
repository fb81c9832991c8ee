"""CPU time that this process has used, how many CPUs it may use, and who else wants them."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from benchserver.environment.container import container_limits


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTimes:
    """Seconds of CPU of one thread and of the whole process, and the time on the wall."""

    wall_s: float
    thread_s: float
    process_s: float

    def since(self, earlier: CpuTimes) -> CpuTimes:
        """Return what was used between two readings of one thread."""
        return CpuTimes(
            wall_s=self.wall_s - earlier.wall_s,
            thread_s=self.thread_s - earlier.thread_s,
            process_s=self.process_s - earlier.process_s,
        )


def cpu_times() -> CpuTimes:
    """Return what the calling thread, and this process, have used until now."""
    return CpuTimes(
        wall_s=time.monotonic(), thread_s=time.thread_time(), process_s=time.process_time()
    )


def usable_cpus() -> float:
    """Return how many CPUs this process may use: its affinity, or a container's quota if less."""
    allowed = float(len(os.sched_getaffinity(0)))
    quota = container_limits().cpus
    return allowed if quota is None else min(allowed, quota)


def load_average() -> tuple[float, ...]:
    """Return the load of the last 1, 5 and 15 minutes, or nothing if the system does not say."""
    try:
        return os.getloadavg()
    except OSError:
        return ()

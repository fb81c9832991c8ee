"""What control groups let this process have: CPU time, memory, processes.

Either version of them, and both at once, as containers and services have them.  A limit holds for
a group and all groups in it, so the lowest one on the way from ours to the root counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchserver.environment.reading import read_number, read_text

_OURS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")

_NO_LIMIT_BYTES = 1 << 60
"""Version 1 says so much, or more, where it means that there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLimits:
    """The limits of our control groups; None where there is none."""

    cpus: float | None
    memory_bytes: int | None
    processes: int | None


def container_limits(ours: Path = _OURS, mount: Path = _MOUNT) -> ContainerLimits:
    """Return the limits that hold for this process."""
    groups = _Groups(read_text(ours), mount)
    memory = [
        *_numbers(groups.new(), "memory.max"),
        *(
            n
            for n in _numbers(groups.old("memory"), "memory.limit_in_bytes")
            if n < _NO_LIMIT_BYTES
        ),
    ]
    processes = [*_numbers(groups.new(), "pids.max"), *_numbers(groups.old("pids"), "pids.max")]
    cpus = [
        *(_share(read_text(group / "cpu.max").split()) for group in groups.new()),
        *(
            _share([read_text(group / f"cpu.cfs_{name}_us") for name in ("quota", "period")])
            for group in groups.old("cpu")
        ),
    ]
    return ContainerLimits(
        cpus=min((share for share in cpus if share), default=None),
        memory_bytes=min((limit for limit in memory if limit < _NO_LIMIT_BYTES), default=None),
        processes=min(processes, default=None),
    )


@dataclass(frozen=True, slots=True)
class _Groups:
    """The folders of our groups, up to the root of each hierarchy."""

    text: str
    mount: Path

    def new(self) -> Iterator[Path]:
        """Yield those of version 2."""
        unified = self.mount / "unified"
        root = unified if unified.is_dir() else self.mount
        for _, controllers, path in self._lines():
            if not controllers:
                yield from _upwards(root, path)

    def old(self, controller: str) -> Iterator[Path]:
        """Yield those of version 1 that one controller has."""
        for _, controllers, path in self._lines():
            if controller in controllers.split(","):
                for name in (controllers, controller):
                    if (self.mount / name).is_dir():
                        yield from _upwards(self.mount / name, path)
                        break

    def _lines(self) -> Iterator[list[str]]:
        for line in self.text.splitlines():
            parts = line.split(":", 2)
            if len(parts) == 3:
                yield parts


def _upwards(root: Path, path: str) -> Iterator[Path]:
    """Yield a group and those that hold it.

    A container may be told a path of its host's that its own mount does not have.
    """
    group = root / path.lstrip("/")
    while group != root and root in group.parents:
        if group.is_dir():
            yield group
        group = group.parent
    yield root


def _numbers(groups: Iterator[Path], name: str) -> list[int]:
    found = (read_number(group / name) for group in groups)
    return [number for number in found if number is not None]


def _share(both: list[str]) -> float | None:
    """Return how many CPUs a quota in a period come to; None for "max", -1, or nothing there."""
    try:
        quota_us, period_us = (int(text) for text in both)
    except ValueError:
        return None
    return quota_us / period_us if quota_us > 0 and period_us > 0 else None

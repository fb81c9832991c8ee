"""The machine: its kernel, CPUs, memory, limits, network and GPUs, as the kernel shows them."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchserver.environment.container import container_limits
from benchserver.environment.reading import (
    NOT_INSTALLED,
    field_in,
    kib_in,
    not_known,
    read_number,
    read_text,
)
from benchserver.environment.usage import usable_cpus

_ROOT = Path("/")
_MOST_DEVICES = 64
"""Of one kind: a host of containers has an interface for each."""


def machine_document(load_at_begin: tuple[float, ...], root: Path = _ROOT) -> dict[str, Any]:
    """Return what a report says of this machine; `load_at_begin` is its load average then."""
    nodes = _entries(root / "sys/devices/system/node", "node[0-9]*")
    memory = kib_in(read_text(root / "proc/meminfo"), "MemTotal")
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpu_model": _cpu_model(root),
        "cpus": os.cpu_count(),
        "usable_cpus": usable_cpus(),
        "numa_nodes": len(nodes) or not_known("/sys lists none"),
        "memory_bytes": memory or not_known("/proc/meminfo does not say"),
        "container": {
            name: "no limit" if limit is None else limit
            for name, limit in asdict(container_limits()).items()
        },
        "descriptors": dict(
            zip(("soft", "hard"), resource.getrlimit(resource.RLIMIT_NOFILE), strict=True)
        ),
        "shm_bytes": _size_of(root / "dev/shm"),
        "load_average_at_begin": list(load_at_begin) or not_known("the system does not say"),
        "networks": [_network(path) for path in _entries(root / "sys/class/net", "*")],
        "gpu_driver": _driver(root),
        "gpus": [_gpu(path) for path in _entries(root / "proc/driver/nvidia/gpus", "*")],
    }


def _cpu_model(root: Path) -> str:
    text = read_text(root / "proc/cpuinfo", 1 << 14)
    for name in ("model name", "cpu model", "Model", "CPU part"):
        if found := field_in(text, name):
            return found
    return not_known("/proc/cpuinfo does not say")


def _entries(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(_first(folder.glob(pattern)))
    except OSError:
        return []


def _first(paths: Iterator[Path]) -> Iterator[Path]:
    for _, path in zip(range(_MOST_DEVICES), paths, strict=False):
        yield path


def _size_of(path: Path) -> int | str:
    try:
        found = os.statvfs(path)
    except OSError:
        return not_known(f"there is no {path}")
    return found.f_frsize * found.f_blocks


def _network(path: Path) -> dict[str, Any]:
    """Return an interface; one that is down, or is no hardware, says no speed."""
    speed = read_number(path / "speed")
    return {
        "name": path.name,
        "state": read_text(path / "operstate", 64).strip() or not_known("it does not say"),
        "speed_mbit_per_s": not_known("it does not say") if speed is None else speed,
    }


def _driver(root: Path) -> str:
    lines = read_text(root / "proc/driver/nvidia/version", 1 << 12).splitlines()
    return lines[0].partition(":")[2].strip() if lines else NOT_INSTALLED


def _gpu(path: Path) -> dict[str, str]:
    text = read_text(path / "information", 1 << 14)
    return {
        "bus": path.name,
        "model": field_in(text, "Model") or not_known("the driver does not say"),
        "uuid": field_in(text, "GPU UUID") or not_known("the driver does not say"),
    }

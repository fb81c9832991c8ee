"""Names in /dev/shm that a process has mapped, and what they take."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from benchserver.environment.reading import read_text

SHM_DIR = Path("/dev/shm")
_PROC = Path("/proc")
_MOST_MAPS_BYTES = 8 << 20
_BLOCK_BYTES = 512
"""What st_blocks counts, whatever the file system's own blocks are."""

_DELETED = " (deleted)"


def mapped_names(pid: int, proc: Path = _PROC, shm: Path = SHM_DIR) -> frozenset[str]:
    """Return the names in /dev/shm that a process has mapped now; none if it cannot be seen."""
    prefix, found = f"{shm}/", set[str]()
    for line in read_text(proc / str(pid) / "maps", _MOST_MAPS_BYTES).splitlines():
        at = line.find(prefix)
        if at >= 0 and not line.endswith(_DELETED):
            found.add(line[at + len(prefix) :])
    return frozenset(found)


def bytes_of(names: Iterable[str], shm: Path = SHM_DIR) -> dict[str, int]:
    """Return what each of these names takes now; those that are not there any more are left out."""
    taken: dict[str, int] = {}
    for name in names:
        try:
            taken[name] = os.lstat(shm / name).st_blocks * _BLOCK_BYTES
        except OSError:
            continue
    return taken

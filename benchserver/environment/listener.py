"""Which process of this host listens on a port, as /proc shows it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from benchserver.environment.reading import read_text

_PROC = Path("/proc")
_LISTENS = "0A"
_MOST_BYTES = 16 << 20
"""A table of 100,000 connections."""

_LOOPBACK = re.compile(
    r"(?:tcp|https?)://(?:localhost|127\.[0-9.]+|\[::1\]):([0-9]{1,5})", re.ASCII
)


def local_port(url: str) -> int | None:
    """Return the port of a URL that names this host, by its loopback addresses; else None."""
    found = _LOOPBACK.fullmatch(url)
    return int(found[1]) if found else None


def pid_listening(port: int, within_s: float, proc: Path = _PROC) -> int | None:
    """Return the process that listens on a TCP port, or None if none of ours is found in time.

    Of several that share the socket, the first: its children have it from it.
    """
    deadline_s = time.monotonic() + within_s
    sockets = {f"socket:[{inode}]" for inode in _inodes(port, proc)}
    if not sockets:
        return None
    for pid in sorted(int(entry) for entry in _names(proc) if entry.isdigit()):
        for descriptor in _names(proc / str(pid) / "fd"):
            try:
                if os.readlink(proc / str(pid) / "fd" / descriptor) in sockets:
                    return pid
            except OSError:
                continue  # closed meanwhile, or another user's
        if time.monotonic() > deadline_s:
            return None
    return None


def _inodes(port: int, proc: Path) -> Iterator[str]:
    """Yield the sockets that listen on a port, by their numbers in the table of connections."""
    for table in ("net/tcp", "net/tcp6"):
        for line in read_text(proc / table, _MOST_BYTES).splitlines()[1:]:
            columns = line.split()
            listens = len(columns) > 9 and columns[3] == _LISTENS
            if listens and int(columns[1].rpartition(":")[2], 16) == port:
                yield columns[9]


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []

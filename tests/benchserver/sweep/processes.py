"""Small programs that tests of the sweep run, and whether they still live."""

from __future__ import annotations

import sys
import time
from pathlib import Path

PYTHON = (sys.executable, "-S", "-c")

WITHIN_S = 60.0
"""This machine may be busy."""


def sleeper(pids: Path, *, deaf: bool = False, apart: bool = False) -> tuple[str, ...]:
    """Return a command with a child, both of which write their pids and sleep.

    `deaf`: neither hears SIGTERM.  `apart`: the child has a session of its own.
    """
    ignoring = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if deaf else "pass"
    leaving = "os.setsid()" if apart else "pass"
    text = f"""
import os, signal, time
{ignoring}
if os.fork() == 0:
    {leaving}
with open({str(pids)!r}, "a") as file:
    file.write(f"{{os.getpid()}}\\n")
time.sleep(600)
"""
    return (*PYTHON, text)


def written_pids(path: Path) -> list[int]:
    """Return the pids of a sleeper and its child, once both are there."""
    deadline_s = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline_s:
        found = path.read_text().split() if path.exists() else []
        if len(found) == 2:
            return [int(pid) for pid in found]
        time.sleep(0.02)
    raise AssertionError("the sleeper did not start")


def lives(pid: int) -> bool:
    """Tell whether a process runs; one that nobody has reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def all_gone(pids: list[int]) -> bool:
    """Wait until none of these processes runs, and tell whether that came."""
    deadline_s = time.monotonic() + WITHIN_S
    while any(map(lives, pids)) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return not any(map(lives, pids))

"""A program between the sweep and a command: nothing of the command outlives the sweep.

    python guard.py SECONDS COMMAND...

The command runs in a session, and so a process group, of its own.  It is told to end (SIGTERM to
the group) when a line with a number of seconds comes on standard input, or when that ends, as it
does when the sweep is killed; after those seconds, or SECONDS, the group is killed.  What left the
group comes to us as orphans, and is killed as well.  If the guard itself is killed, the kernel
kills the command.

It loads the standard library alone, and nothing of ours: it must start fast.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_POLL_S = 0.02
_NOT_STARTED = 127
_SIGNALLED = 128
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_MOST_ORPHANS = 1000
_libc = ctypes.CDLL(None)


def main(arguments: list[str]) -> int:
    """Run a command to its end, and return its exit code, 128 + N for a signal N."""
    within_s, command = float(arguments[0]), arguments[1:]
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ours = os.getpid()
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: _go_with(ours),  # this process has one thread
        )
    except OSError as error:
        sys.stderr.write(f"cannot run {command[0]}: {error.strerror}\n")
        return _NOT_STARTED
    asked_s = _until_asked(child.pid, within_s)
    if asked_s is not None:
        _signal_group(child.pid, signal.SIGTERM)
        _until_ended(child.pid, asked_s)
    # Its leader is not reaped yet, so the number of the group is still its own.
    _signal_group(child.pid, signal.SIGKILL)
    code = child.wait()
    _kill_orphans()
    return code if code >= 0 else _SIGNALLED - code


def _go_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, which may have happened already."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _until_asked(pid: int, within_s: float) -> float | None:
    """Wait until the command has ended (None), or must: return the seconds that it is given."""
    while not _has_ended(pid):
        if select.select([0], [], [], _POLL_S)[0]:
            said = os.read(0, 64)
            with contextlib.suppress(ValueError):
                return float(said)
            return within_s
    return None


def _until_ended(pid: int, within_s: float) -> None:
    deadline_s = time.monotonic() + within_s
    while not _has_ended(pid) and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)


def _has_ended(pid: int) -> bool:
    """Tell whether our child has ended, and leave it to be reaped."""
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, pid, options) is not None


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _kill_orphans() -> None:
    """Kill what has become our child because its parent ended, until there is nothing left."""
    for _ in range(_MOST_ORPHANS):
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        if not children:
            return
        for child in map(int, children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Starts commands of bench-server without loading it each time: forks of a preloaded process.

For tests of what a command does.  Those of how its process begins, from the first import on, start
`python -m benchserver` by themselves.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.mitm.preloaded import PID_BYTES, STATUS_BYTES

ROOT = Path(__file__).resolve().parents[2]
_LOAD_WITHIN_S = 60.0
_SOON_S = 30.0


@dataclass(slots=True, kw_only=True)
class Forked:
    """A command that runs, or has ended; its methods are those of `subprocess.Popen`."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[str]
    stderr: IO[str] | None
    _told: IO[bytes]
    returncode: int | None = None
    _said: list[Future[str]] = field(default_factory=list)

    def poll(self) -> int | None:
        """Return its exit code, a signal's as a negative number, or None while it runs."""
        return self._ended_within(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code; TimeoutExpired if it has none within so many seconds."""
        code = self._ended_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired([str(self.pid)], timeout or 0.0)
        return code

    def _ended_within(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], seconds)[0]:
            status = self._told.read(STATUS_BYTES)
            self._told.close()
            assert len(status) == STATUS_BYTES, "the preloaded process has ended before its child"
            self.returncode = int.from_bytes(status, "big", signed=True)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return all that it says until its end; TimeoutExpired if that takes too long."""
        if not self._said:
            streams = [stream for stream in (self.stdout, self.stderr) if stream is not None]
            pool = ThreadPoolExecutor(len(streams))
            self._said = [pool.submit(_all_of, stream) for stream in streams]
            pool.shutdown(wait=False)
        if wait(self._said, timeout).not_done:
            raise subprocess.TimeoutExpired([str(self.pid)], timeout or 0.0)
        self.wait(timeout)
        said = [future.result() for future in self._said]
        return said[0], said[1] if len(said) > 1 else ""


def _all_of(stream: IO[str]) -> str:
    if stream.closed:
        return ""
    with stream:
        return stream.read()


def start(
    *arguments: str,
    variables: Mapping[str, str],
    stdin: bool = False,
    stderr: IO[bytes] | int | None = None,
) -> Forked:
    """Start a command in a session of its own.

    `stdin`: a pipe, else nothing can be read; `stderr`: as of Popen, PIPE, a file, or ours.
    """
    order = {"arguments": arguments, "variables": dict(variables), "folder": str(ROOT)}
    told, tell = os.pipe()
    out, its_out = os.pipe()
    its_in, into = os.pipe() if stdin else (os.open(os.devnull, os.O_RDONLY), None)
    err, its_err = os.pipe() if stderr == subprocess.PIPE else (None, _descriptor(stderr))
    try:
        socket.send_fds(
            _preloaded(), [json.dumps(order).encode()], [its_in, its_out, its_err, tell]
        )
    finally:
        for descriptor in (its_in, its_out, its_err, tell):
            os.close(descriptor)
    telling = os.fdopen(told, "rb", buffering=0)
    assert select.select([telling], [], [], _SOON_S)[0], "the preloaded process does not answer"
    return Forked(
        pid=int.from_bytes(telling.read(PID_BYTES), "big"),
        stdin=None if into is None else os.fdopen(into, "wb", buffering=0),
        stdout=os.fdopen(out, encoding="utf-8"),
        stderr=None if err is None else os.fdopen(err, encoding="utf-8"),
        _told=telling,
    )


def _descriptor(stderr: IO[bytes] | int | None) -> int:
    """Return a descriptor of its own for what a child is to write to."""
    if stderr is None:
        return os.dup(2)
    return os.dup(stderr if isinstance(stderr, int) else stderr.fileno())


@functools.cache
def _preloaded() -> socket.socket:
    """Start the preloaded process, once; it ends with us."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.mitm.preloaded", str(its.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # its children take over its streams as they are: no files
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            pass_fds=[its.fileno()],
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        process.communicate(timeout=_LOAD_WITHIN_S)

    atexit.register(end)
    return ours

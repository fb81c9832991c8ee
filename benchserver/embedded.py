"""The embedded server as a child process on free loopback ports, for `--embedded`.

The child stops when its standard input ends, so it goes with us even after SIGKILL.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchserver.ending import Ending
from benchserver.errors import BEFORE, FatalError, one_line
from shapespec import ShapeSpec, token_bytes

_READY_WITHIN_S = 15.0
_GPU_READY_WITHIN_S = 60.0
"""torch is loaded and L1 pinned before the first line."""

_STOP_WITHIN_S = 2.0
_GPU_STOP_WITHIN_S = 10.0
"""L1 is unpinned, which takes a while for each GiB."""

_POLL_S = 0.05
"""How often is looked whether a signal has come."""

_MAX_SAID_BYTES = 1 << 16
"""What a child may print before its line: torch, or what it loads, says something at times."""

_MIN_L1_BYTES = 64 << 20
_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedServer:
    """Where the child listens."""

    rpc_url: str
    http_url: str


def embedded_l1_bytes(spec: ShapeSpec, tp_size: int, num_tokens: int) -> int:
    """Return the size of its L1: room for a few sequences."""
    return max(_MIN_L1_BYTES, 4 * token_bytes(spec) * num_tokens * tp_size)


@contextmanager
def embedded_server(
    spec: ShapeSpec,
    tp_size: int,
    num_tokens: int,
    gpu: bool = False,
    ending: Ending | None = None,
) -> Iterator[EmbeddedServer]:
    """Start a server with room for a few sequences, and stop it at the end.

    `gpu`: it is ready for GPU clients.  FatalError if it does not start, or if `ending` is asked
    for meanwhile.  While this lasts a first signal is noted there, and a second kills the child.
    """
    l1_bytes = embedded_l1_bytes(spec, tp_size, num_tokens)
    command = [sys.executable, "-m", "benchserver", "serve", "--port", "0", "--http-port", "0"]
    command += ["--l1-size-gb", f"{l1_bytes / _GIB:.9f}", "--stop-with-stdin"]
    if gpu:
        command.append("--gpu")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("BENCH_SERVER_")}
    ending = ending or Ending()
    with ending.asking():
        # A session of its own: Ctrl-C on the terminal must reach us, not it.
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=environment,
        )
        with ending.undoing(child.kill):
            try:
                yield _await_ready(child, ending, _GPU_READY_WITHIN_S if gpu else _READY_WITHIN_S)
            finally:
                _stop(child, ending, _GPU_STOP_WITHIN_S if gpu else _STOP_WITHIN_S)


def _await_ready(child: subprocess.Popen[bytes], ending: Ending, within_s: float) -> EmbeddedServer:
    """Read what the child prints until it says where it listens: a line with a JSON map."""
    assert child.stdout is not None
    deadline_s = time.monotonic() + within_s
    said, rest = b"", b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while time.monotonic() < deadline_s:
            if ending.asked:
                child.kill()
                raise FatalError(BEFORE)
            if not selector.select(_POLL_S):
                continue
            data = os.read(child.stdout.fileno(), _MAX_SAID_BYTES)
            said += data
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if server := _ports_in(line):
                    return server
            if not data or len(said) > _MAX_SAID_BYTES:
                shown = one_line(said[:_MAX_SAID_BYTES].decode("utf-8", "replace"), 120)
                raise FatalError(f"the embedded server did not start: it said {shown or 'nothing'}")
    raise FatalError(f"the embedded server was not ready within {within_s:g} s")


def _ports_in(line: bytes) -> EmbeddedServer | None:
    """Return where a server listens that says so in this line, or None."""
    try:
        ports = json.loads(line)
        rpc_port, http_port = int(ports["rpc_port"]), int(ports["http_port"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return EmbeddedServer(
        rpc_url=f"tcp://127.0.0.1:{rpc_port}", http_url=f"http://127.0.0.1:{http_port}"
    )


def _stop(child: subprocess.Popen[bytes], ending: Ending, within_s: float) -> None:
    """Let the child end, and kill it if it does not, sooner if a signal has come."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.close()
    started_s = time.monotonic()
    while child.poll() is None:
        if time.monotonic() - started_s >= within_s or ending.seconds_left(within_s) <= 0:
            child.kill()
            child.wait()
            break
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_POLL_S)
    child.stdout.close()

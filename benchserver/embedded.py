"""The embedded server as a child process on free loopback ports, for `--embedded`.

The child stops when its standard input ends, so it goes with us even after SIGKILL.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchserver.errors import FatalError, one_line
from shapespec import ShapeSpec, token_bytes

_READY_WITHIN_S = 15.0
_GPU_READY_WITHIN_S = 60.0
"""torch is loaded and L1 pinned before the first line."""

_STOP_WITHIN_S = 2.0
_GPU_STOP_WITHIN_S = 10.0
"""L1 is unpinned, which takes a while for each GiB."""

_MIN_L1_BYTES = 64 << 20
_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedServer:
    """Where the child listens."""

    rpc_url: str
    http_url: str


@contextmanager
def embedded_server(
    spec: ShapeSpec, tp_size: int, num_tokens: int, gpu: bool = False
) -> Iterator[EmbeddedServer]:
    """Start a server with room for a few sequences, and stop it at the end.

    `gpu`: it is ready for GPU clients.  FatalError if it does not start.
    """
    sequence_bytes = token_bytes(spec) * num_tokens * tp_size
    l1_bytes = max(_MIN_L1_BYTES, 4 * sequence_bytes)
    command = [sys.executable, "-m", "benchserver", "serve", "--port", "0", "--http-port", "0"]
    command += ["--l1-size-gb", f"{l1_bytes / _GIB:.9f}", "--stop-with-stdin"]
    if gpu:
        command.append("--gpu")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("BENCH_SERVER_")}
    # A session of its own: Ctrl-C on the terminal must reach us, not it.
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=environment,
    )
    try:
        yield _await_ready(child, _GPU_READY_WITHIN_S if gpu else _READY_WITHIN_S)
    finally:
        _stop(child, _GPU_STOP_WITHIN_S if gpu else _STOP_WITHIN_S)


def _await_ready(child: subprocess.Popen[bytes], within_s: float) -> EmbeddedServer:
    """Read the child's first line: a JSON map of its ports."""
    assert child.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        if not selector.select(within_s):
            raise FatalError(f"the embedded server was not ready within {within_s:g} s")
    line = child.stdout.readline()
    try:
        ports = json.loads(line)
        rpc_port, http_port = int(ports["rpc_port"]), int(ports["http_port"])
    except (ValueError, TypeError, KeyError) as error:
        shown = one_line(line.decode("utf-8", "replace"), 120) or "nothing"
        raise FatalError(f"the embedded server did not start: it said {shown}") from error
    return EmbeddedServer(
        rpc_url=f"tcp://127.0.0.1:{rpc_port}", http_url=f"http://127.0.0.1:{http_port}"
    )


def _stop(child: subprocess.Popen[bytes], within_s: float) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.close()
    try:
        child.wait(within_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    child.stdout.close()

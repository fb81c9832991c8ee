"""The embedded server as a child process on free loopback ports: how it is started and stopped.

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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a child may take until it is ready, and until it has ended, in seconds."""

    ready_s: float
    stop_s: float


def serve_command(*options: str) -> list[str]:
    """Return the command of a server that takes free ports, says which, and ends with its stdin."""
    command = [sys.executable, "-m", "benchserver", "serve", "--port", "0", "--http-port", "0"]
    return [*command, "--stop-with-stdin", *options]


def own_environment() -> dict[str, str]:
    """Return our environment without the variables that set options."""
    return {k: v for k, v in os.environ.items() if not k.startswith("BENCH_SERVER_")}


def server_in(line: bytes) -> EmbeddedServer | None:
    """Return where a server listens that says so in this line, a JSON map, or None."""
    try:
        ports = json.loads(line)
        rpc_port, http_port = int(ports["rpc_port"]), int(ports["http_port"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return EmbeddedServer(
        rpc_url=f"tcp://127.0.0.1:{rpc_port}", http_url=f"http://127.0.0.1:{http_port}"
    )


def embedded_l1_bytes(spec: ShapeSpec, ranks: int, num_tokens: int, at_once: int = 1) -> int:
    """Return the size of its L1: room for twice the sequences that are under way, and two more."""
    sequences = 2 * at_once + 2
    return max(_MIN_L1_BYTES, sequences * token_bytes(spec) * num_tokens * ranks)


@contextmanager
def embedded_server(
    spec: ShapeSpec,
    ranks: int,
    num_tokens: int,
    at_once: int = 1,
    gpu: bool = False,
    ending: Ending | None = None,
) -> Iterator[EmbeddedServer]:
    """Start a server with room for a few sequences, and stop it at the end.

    `gpu`: it is ready for GPU clients.  FatalError if it does not start, or if `ending` is asked
    for meanwhile.  While this lasts a first signal is noted there, and a second kills the child.
    """
    l1_bytes = embedded_l1_bytes(spec, ranks, num_tokens, at_once)
    options = ["--l1-size-gb", f"{l1_bytes / _GIB:.9f}", *(["--gpu"] if gpu else [])]
    patience = Patience(
        ready_s=_GPU_READY_WITHIN_S if gpu else _READY_WITHIN_S,
        stop_s=_GPU_STOP_WITHIN_S if gpu else _STOP_WITHIN_S,
    )
    ending = ending or Ending()
    with ending.asking(), running_server(options, patience, ending=ending) as (server, _):
        yield server


@contextmanager
def running_server(
    options: Sequence[str],
    patience: Patience,
    *,
    ending: Ending | None = None,
    stderr: IO[bytes] | None = None,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> Iterator[tuple[EmbeddedServer, subprocess.Popen[bytes]]]:
    """Start a server with these options, and stop it at the end, if it has not ended by then.

    `variables` are added to its environment, `folder` is the one that it runs in.  FatalError if
    it does not start, or if `ending` is asked for meanwhile, which kills it at an end at once.
    """
    ending = ending or Ending()
    # A session of its own: Ctrl-C on the terminal must reach us, not it.
    child = subprocess.Popen(
        serve_command(*options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        cwd=folder,
        start_new_session=True,
        env={**own_environment(), **(variables or {})},
    )
    with ending.undoing(child.kill):
        try:
            yield _await_ready(child, ending, patience.ready_s), child
        finally:
            _stop(child, ending, patience.stop_s)


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
                if server := server_in(line):
                    return server
            if not data or len(said) > _MAX_SAID_BYTES:
                shown = one_line(said[:_MAX_SAID_BYTES].decode("utf-8", "replace"), 120)
                raise FatalError(f"the embedded server did not start: it said {shown or 'nothing'}")
    raise FatalError(f"the embedded server was not ready within {within_s:g} s")


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

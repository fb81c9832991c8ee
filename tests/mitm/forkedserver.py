"""Runs the embedded server for tests, from a process that has loaded it already."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from benchserver.embedded import own_environment, serve_command, server_in
from tests.mitm.forked import Forked, start
from tests.mitm.running import Urls
from tests.real.serverprocess import STOP_WITHIN_S

_READY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedServer:
    """A server that this process started."""

    urls: Urls
    process: Forked

    def kill(self) -> None:
        """Kill it, as kill -9 does."""
        self.process.kill()
        self.process.wait()


@contextmanager
def forked_server(
    *options: str, stderr: IO[bytes] | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[ForkedServer]:
    """Run our embedded server; `stderr` None: what it writes there goes to ours."""
    _, _, _, *arguments = serve_command("--l1-size-gb", "0.0625", *options)
    variables = {**own_environment(), **(environment or {})}
    process = start(*arguments, variables=variables, stdin=True, stderr=stderr)
    assert process.stdin is not None
    try:
        yield ForkedServer(urls=_await_ready(process), process=process)
    finally:
        process.stdin.close()
        try:
            process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _await_ready(process: Forked) -> Urls:
    """Return where it listens, by the first line that it prints."""
    until_s = time.monotonic() + _READY_S
    said = b""
    while b"\n" not in said:
        left_s = max(0.0, until_s - time.monotonic())
        assert select.select([process.stdout], [], [], left_s)[0], f"not ready, said {said!r}"
        data = os.read(process.stdout.fileno(), 1 << 16)
        assert data, f"the server ended with {process.wait(_READY_S)}, having said {said!r}"
        said += data
    server = server_in(said.partition(b"\n")[0])
    assert server is not None, f"the server said {said!r}"
    return Urls(rpc_url=server.rpc_url, http_url=server.http_url)

"""Starts servers for tests, waits until they serve, and stops only what it started."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchserver.embedded import Patience, running_server
from tests.mitm.forked import ROOT
from tests.mitm.running import Urls
from tests.real import serverprocess
from tests.real.serverprocess import STOP_WITHIN_S

_EMBEDDED_READY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that this process started."""

    urls: Urls
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """Kill it, as kill -9 does."""
        self.process.kill()
        self.process.wait()


@contextmanager
def embedded_server(
    *options: str,
    stderr: IO[bytes] | None = None,
    ready_s: float = _EMBEDDED_READY_S,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Run our embedded server; `stderr` None: what it writes there goes to ours."""
    served = running_server(
        ("--l1-size-gb", "0.0625", *options),
        Patience(ready_s=ready_s, stop_s=STOP_WITHIN_S),
        stderr=stderr,
        folder=ROOT,
        variables=environment,
    )
    with served as (server, process):
        yield Server(urls=Urls(rpc_url=server.rpc_url, http_url=server.http_url), process=process)


@contextmanager
def real_server(python: str, log: Path, options: Sequence[str]) -> Iterator[Server]:
    """Run the real LMCache server of the environment that `python` belongs to."""
    with serverprocess.running_server(python, options, log=log) as server:
        urls = Urls(rpc_url=server.rpc_url, http_url=server.http_url)
        yield Server(urls=urls, process=server.process)

"""A Mooncake master with its HTTP metadata server, on free ports of loopback."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.real.serverprocess import free_ports

READY_S = 20.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Master:
    """A master that this process started."""

    port: int
    metadata_port: int
    metrics_port: int
    command: Sequence[str]
    process: subprocess.Popen[bytes]

    def url(self, *, segment_gb: float = 0.25, buffer_gb: float = 0.0625, more: str = "") -> str:
        """Return the URL of a tier on this master."""
        return (
            f"mooncake://127.0.0.1:{self.port}?metadata=http://127.0.0.1:{self.metadata_port}"
            f"/metadata&segment_gb={segment_gb}&buffer_gb={buffer_gb}{more}"
        )


def binary() -> Path:
    """Return the program; the package's script of that name only calls it."""
    spec = importlib.util.find_spec("mooncake")
    assert spec is not None, "Mooncake is not installed; scripts/test --mooncake installs it"
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "mooncake_master"


@contextmanager
def running_master(log: Path) -> Iterator[Master]:
    """Run a master until the block ends."""
    port, metadata_port, metrics_port = free_ports(3)
    command = [
        str(binary()),
        "-rpc_address=127.0.0.1",
        f"-rpc_port={port}",
        "-enable_http_metadata_server=true",
        "-http_metadata_server_host=127.0.0.1",
        f"-http_metadata_server_port={metadata_port}",
        "-metrics_host=127.0.0.1",
        f"-metrics_port={metrics_port}",
    ]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        for each in (port, metadata_port):
            _await_port(each, process, log)
        yield Master(
            port=port,
            metadata_port=metadata_port,
            metrics_port=metrics_port,
            command=command,
            process=process,
        )
    finally:
        process.kill()
        process.wait()


def _await_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(_POLL_S)
    raise RuntimeError(f"the master was not ready: {log.read_text(errors='replace')[-2000:]}")

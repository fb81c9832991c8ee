"""What both sides hold, a look at a time."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from benchserver.monitor.processes import Processes

LISTEN = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def listening(port: int = 0) -> Iterator[tuple[int, int]]:
    """Yield the pid and the port of a process that listens."""
    child = subprocess.Popen(
        [sys.executable, "-c", LISTEN, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    try:
        yield child.pid, int(child.stdout.readline())
    finally:
        child.communicate()


def test_both_sides_are_seen_and_a_server_that_is_another_process_is_said() -> None:
    with listening() as (first, port):
        processes = Processes(f"tcp://127.0.0.1:{port}")
        seen = processes.look()
        assert seen.ours is not None
        assert seen.server is not None
        assert (seen.ours.pid, seen.server.pid) == (os.getpid(), first)
        assert (seen.unseen, seen.restarted, seen.shared_bytes) == ("", "", {})
        assert processes.look().restarted == ""
    gone = processes.look()
    assert gone.server is None
    assert gone.unseen == f"no process that we may look at listens on port {port}"
    with listening(port) as (second, _):
        looks = [processes.look() for _ in range(3)]  # not every look seeks
        said = [look.restarted for look in looks if look.restarted]
        assert said == [f"the server's process {first} is gone, now it is {second}"]


def test_a_server_elsewhere_is_not_looked_for() -> None:
    seen = Processes("tcp://192.0.2.1:5555").look()
    assert seen.ours is not None
    assert seen.server is None
    assert seen.unseen == "the server is not on this host's loopback address"


def test_a_server_in_our_own_process_is_not_told_from_us() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        seen = Processes(f"tcp://127.0.0.1:{server.getsockname()[1]}").look()
    assert seen.server is None

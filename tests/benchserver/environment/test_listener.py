"""Who listens on a port: tables and descriptors as /proc shows them, and this process."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from benchserver.environment.listener import local_port, pid_listening

_WITHIN_S = 60.0
HEAD = "  sl  local_address rem_address   st tx rx tr tm->when retrnsmt   uid  timeout inode\n"


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("tcp://127.0.0.1:5555", 5555),
        ("tcp://localhost:1", 1),
        ("tcp://[::1]:65535", 65535),
        ("tcp://127.1.2.3:7", 7),
        ("tcp://10.0.0.1:5555", None),
        ("tcp://localhost.example.org:5555", None),
        ("tcp://example.org:127", None),
    ],
)
def test_a_port_of_this_host(url: str, port: int | None) -> None:
    assert local_port(url) == port


def line(port: int, state: str, inode: int) -> str:
    return f"   0: 0100007F:{port:04X} 00000000:0000 {state} 0:0 00:0 0 1000 0 {inode} 1 0 100 0\n"


def own(proc: Path, pid: str, *targets: str) -> None:
    folder = proc / pid / "fd"
    folder.mkdir(parents=True)
    for number, target in enumerate(targets):
        (folder / str(number)).symlink_to(target)


def test_the_process_that_has_the_socket(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    rows = line(5555, "01", 7) + line(5556, "0A", 8) + line(5555, "0A", 9) + "short line\n"
    (tmp_path / "net/tcp").write_text(HEAD + rows)
    (tmp_path / "net/tcp6").write_text(HEAD + line(6000, "0A", 10))
    own(tmp_path, "41", "socket:[7]", "socket:[8]", "/dev/null")
    own(tmp_path, "300", "socket:[9]")
    own(tmp_path, "1000", "socket:[9]", "socket:[10]")
    (tmp_path / "self").mkdir()
    assert pid_listening(5555, _WITHIN_S, tmp_path) == 300
    assert pid_listening(5556, _WITHIN_S, tmp_path) == 41
    assert pid_listening(6000, _WITHIN_S, tmp_path) == 1000
    assert pid_listening(5557, _WITHIN_S, tmp_path) is None
    assert pid_listening(5555, -1.0, tmp_path) is None  # no time for the second one


def test_a_socket_of_another_user_is_nobody_s(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text(HEAD + line(5555, "0A", 9))
    (tmp_path / "12").mkdir()
    assert pid_listening(5555, _WITHIN_S, tmp_path) is None
    assert pid_listening(5555, _WITHIN_S, tmp_path / "missing") is None


def test_this_process_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert pid_listening(server.getsockname()[1], _WITHIN_S) == os.getpid()

"""Starting and stopping a server, with a stand-in for the lmcache command."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.real import serverprocess
from tests.real.serverprocess import HOST, ServerFailedError, held_port, running_server

LAUNCHER = Path(__file__).with_name("launcher.py")
WITHIN_S = 30.0
STAND_IN = f"""#!{sys.executable}
import json, os, signal, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

print("stand-in says hello", flush=True)
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
Path(__file__).with_name("seen.json").write_text(json.dumps([os.getpid(), sys.argv[1], options]))
if "--fail" in options:
    sys.exit(int(options["--fail"]))
if "--stubborn" in options:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

class Health(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/healthcheck" else 404)
        self.end_headers()
        if "--one-check" in options:
            os._exit(7)

HTTPServer((options["--http-host"], int(options["--http-port"])), Health).serve_forever()
"""


@pytest.fixture
def python(tmp_path: Path) -> str:
    """Return the python of an environment whose lmcache is the stand-in."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    command = folder / "lmcache"
    command.write_text(STAND_IN)
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return str(folder / "python")


def seen(python: str) -> tuple[int, dict[str, str]]:
    pid, verb, options = json.loads((Path(python).parent / "seen.json").read_text())
    assert verb == "server"
    return pid, options


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_runs_on_free_loopback_ports_and_stops(python: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running_server(python, ["--l1-size-gb", "0.25"], log=log) as server:
        pid, options = seen(python)
        assert options["--host"] == options["--http-host"] == HOST
        assert server.rpc_url == f"tcp://{HOST}:{options['--port']}"
        assert server.http_url == f"http://{HOST}:{options['--http-port']}"
        assert options["--port"] != options["--http-port"]
        assert options["--l1-size-gb"] == "0.25"
        assert server.process.pid == pid
    assert server.process.returncode == -signal.SIGTERM
    assert "stand-in says hello" in log.read_text()


def test_runs_on_the_ports_asked_for(python: str, tmp_path: Path) -> None:
    with (
        held_port() as rpc,
        held_port() as http,
        running_server(python, (), log=tmp_path / "log", rpc_port=rpc, http_port=http) as server,
    ):
        _, options = seen(python)
        assert (options["--port"], options["--http-port"]) == (str(rpc), str(http))
        assert (server.rpc_port, server.http_port) == (rpc, http)


def test_a_held_port_is_nobody_elses_but_a_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    with held_port() as first:
        monkeypatch.setattr(serverprocess, "_PORTS", range(first, first + 1))
        with pytest.raises(ServerFailedError, match=f"no port from {first} to {first} is free"):
            serverprocess.free_ports(1)
        socket.create_server((HOST, first)).close()
    assert serverprocess.free_ports(1) == [first]


def test_a_port_that_is_taken_is_refused(python: str) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ServerFailedError, match=f"port {port} of {HOST} is not free"),
            running_server(python, (), http_port=port),
        ):
            pass
    assert not (Path(python).parent / "seen.json").exists()


def test_a_server_that_ends_at_once(python: str, tmp_path: Path) -> None:
    with (
        pytest.raises(ServerFailedError, match=r"ended with code 3 .*: stand-in says hello"),
        running_server(python, ["--fail", "3"], log=tmp_path / "log"),
    ):
        pass


def test_a_server_that_is_never_ready(
    python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serverprocess, "READY_WITHIN_S", 1.0)
    with (
        pytest.raises(ServerFailedError, match="not ready within 1 s: stand-in says hello"),
        running_server(python, ["--http-host", "127.0.0.2"], log=tmp_path / "log"),
    ):
        pass
    assert not alive(seen(python)[0])


def test_a_server_that_does_not_stop_is_killed(
    python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serverprocess, "STOP_WITHIN_S", 0.3)
    with running_server(python, ["--stubborn", "yes"], log=tmp_path / "log") as server:
        pass
    assert server.process.returncode == -signal.SIGKILL


def test_no_such_environment(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerFailedError, match=r"cannot start .*/lmcache: .*No such file"),
        running_server(str(tmp_path / "bin/python"), ()),
    ):
        pass


@contextmanager
def launched(python: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [python, str(LAUNCHER), "run", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_launcher_serves_until_a_signal(python: str, number: signal.Signals) -> None:
    with launched(python, "0.4.7", "--shm", "--l1-size-gb", "0.25") as process:
        assert process.stdout is not None
        ports = json.loads(process.stdout.readline())
        pid, options = seen(python)
        assert ports == {
            "release": "0.4.7",
            "rpc_port": int(options["--port"]),
            "http_port": int(options["--http-port"]),
        }
        assert options["--supported-transfer-mode"] == "auto"
        assert options["--shm-name"] == f"real{process.pid}"
        assert options["--l1-size-gb"] == "0.25"
        process.send_signal(number)
        out, err = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, out) == (0, "")
    assert "stand-in says hello" in err
    assert f"--rpc-url tcp://{HOST}:{ports['rpc_port']} " in err
    assert not alive(pid)


def test_the_launcher_stops_while_it_waits(python: str) -> None:
    with launched(python, "0.5.6", "--http-host", "127.0.0.2") as process:
        note = Path(python).parent / "seen.json"
        deadline = time.monotonic() + WITHIN_S
        while not (note.exists() and note.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, out) == (0, ""), err
    assert "Traceback" not in err
    assert not alive(seen(python)[0])


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("0.5.6", "--fail", "3"), 1, "ended with code 3 before it was ready; see above"),
        (("0.5.6", "--one-check", "y"), 1, "the server ended by itself, with code 7"),
        (
            ("0.5.66",),
            2,
            "'0.5.66' is not a release that can be started here, expected one of 0.4.6,",
        ),
        (("0.4.6", "--shm"), 2, "lmcache 0.4.6 has no shared-memory pool"),
        (("0.4.6", "--serves", "auto"), 2, "serves lmcache_driven or engine_driven, not auto"),
        (("0.5.6", "--port", "65536"), 2, "'65536' is not a port"),
        ((), 2, "RELEASE"),
    ],
)
def test_the_launcher_fails_in_one_line(
    python: str, arguments: tuple[str, ...], code: int, text: str
) -> None:
    with launched(python, *arguments) as process:
        _, err = process.communicate(timeout=WITHIN_S)
    assert process.returncode == code, err
    last = err.splitlines()[-1]
    assert last.startswith("real_server: error: ")
    assert text in last
    if code == 2:
        assert err.count("\n") == 1
        assert not (Path(python).parent / "seen.json").exists()

"""`serve` as a process: its end by every signal, its token, its warning, its options."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchserver.cli.main import cli
from benchserver.embedded import own_environment
from tests.benchserver.cli.commandline import invoke
from tests.mitm.forked import ROOT, Forked, start

READY_S = 30.0
END_S = 30.0
SECRET = "hunter2-hunter2-hunter2"
POOL = f"serve-test-{os.getpid()}"
SMALL = ("--port", "0", "--http-port", "0", "--l1-size-gb", "0.01")


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A `serve` that has said that it is ready."""

    process: Forked | subprocess.Popen[str]
    banner: str

    @property
    def url(self) -> str:
        found = re.search(r"http://[^:]+:(\d+)", self.banner)
        assert found, self.banner
        return f"http://127.0.0.1:{found[1]}"

    def end(self) -> tuple[int, str]:
        """Return the exit code and what was said on stderr."""
        _, said = self.process.communicate(timeout=END_S)
        return self.process.wait(), said


@contextmanager
def served(*options: str) -> Iterator[Running]:
    process = start("serve", *SMALL, *options, variables=own_environment(), stderr=subprocess.PIPE)
    with ready(process) as running:
        yield running


@contextmanager
def started(*options: str, before: Sequence[str] = (), **variables: str) -> Iterator[Running]:
    """As `served`, as users start it: where the command line matters, or who started it."""
    process = subprocess.Popen(
        [*before, sys.executable, "-m", "benchserver", "serve", *SMALL, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**own_environment(), **variables},
    )
    with ready(process) as running:
        yield running


@contextmanager
def ready(process: Forked | subprocess.Popen[str]) -> Iterator[Running]:
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], READY_S)[0], "not ready in time"
        banner = process.stdout.readline()
        assert banner, process.communicate(timeout=END_S)[1]
        yield Running(process=process, banner=banner)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def segments() -> list[str]:
    return [path.name for path in Path("/dev/shm").iterdir() if POOL in path.name]


def get(url: str, token: str = "") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=10
        ) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(number: int) -> None:
    with served("--shm-name", POOL) as running:
        assert segments() == [f"lmcache_l1_pool_{POOL}"]
        running.process.send_signal(number)
        assert running.end() == (0, "")
        assert segments() == []


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_more_signals_change_nothing(number: int) -> None:
    with served("--shm-name", POOL) as running:
        deadline_s = time.monotonic() + END_S
        while running.process.poll() is None and time.monotonic() < deadline_s:
            running.process.send_signal(number)
            time.sleep(0.002)  # faster than the end; every moment of it is hit in the long run
        assert running.end() == (0, "")
        assert segments() == []


def test_nohup_is_respected() -> None:
    with started(before=["nohup"]) as running:
        running.process.send_signal(signal.SIGHUP)
        assert get(f"{running.url}/healthcheck")[0] == 200
        running.process.send_signal(signal.SIGTERM)
        assert running.end()[0] == 0


def everything_shown(process: Forked | subprocess.Popen[str]) -> bytes:
    folder = Path(f"/proc/{process.pid}")
    return (folder / "cmdline").read_bytes() + (folder / "comm").read_bytes()


@pytest.mark.parametrize("way", ["option", "equals", "environment", "file"])
def test_a_token_guards_http_and_is_never_shown(way: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    options: dict[str, tuple[str, ...]] = {
        "option": ("--http-token", SECRET),
        "equals": (f"--http-token={SECRET}",),
        "environment": (),
        "file": ("--http-token-file", str(file)),
    }
    variables = {"BENCH_SERVER_HTTP_TOKEN": SECRET} if way == "environment" else {}
    with started(*options[way], **variables) as running:
        assert get(f"{running.url}/healthcheck")[0] == 200
        assert get(f"{running.url}/status")[0] == 401
        status, config = get(f"{running.url}/config", SECRET)
        assert (status, config["http"]["asks_for_token"]) == (200, True)
        assert SECRET not in json.dumps(config) + running.banner
        shown = everything_shown(running.process)
        assert SECRET.encode() not in shown
        assert b"benchserver" in shown
        running.process.send_signal(signal.SIGTERM)
        assert running.end() == (0, "")


def test_without_a_token_http_is_free() -> None:
    with served() as running:
        status, config = get(f"{running.url}/config")
        assert (status, config["http"]["asks_for_token"]) == (200, False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--http-token", "hunter2 hunter2"), "the HTTP token must be"),
        (("--http-token", ""), "the HTTP token is empty"),
        (("--http-token", "hunter2", "--http-token-file", "x"), "are both given"),
        (("--worker-reap-timeout-seconds", "0.5"), "--worker-reap-timeout-seconds is 0.5"),
        (("--worker-reap-timeout-seconds", "-1"), "'--worker-reap-timeout-seconds'"),
        (("--worker-registration-grace-seconds", "5"), "--worker-registration-grace-seconds is 5"),
        (("--session-ttl-seconds", "0"), "'--session-ttl-seconds'"),
        (("--l1-write-ttl-seconds", "0"), "'--l1-write-ttl-seconds'"),
        (("--l1-read-ttl-seconds", "1.5"), "'--l1-read-ttl-seconds'"),
        (("--eviction-trigger-watermark", "1.1"), "'--eviction-trigger-watermark'"),
        (("--eviction-ratio", "nan"), "'--eviction-ratio'"),
        (("--gpu", "--as", "0.5.5"), "--gpu with --as 0.5.5"),
    ],
)
def test_wrong_options_are_one_line(options: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(cli, ["serve", *options])
    assert result.exit_code == 2
    assert result.stderr.startswith("bench-server: error: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr
    assert "hunter2" not in result.stderr


def test_every_option_reaches_the_configuration() -> None:
    options = {
        "--worker-reap-timeout-seconds": "31",
        "--worker-registration-grace-seconds": "41.5",
        "--session-ttl-seconds": "51",
        "--l1-write-ttl-seconds": "61",
        "--l1-read-ttl-seconds": "71",
        "--eviction-trigger-watermark": "0.7",
        "--eviction-ratio": "0.3",
    }
    with served(*(part for option in options.items() for part in option)) as running:
        document = get(f"{running.url}/config")[1]
    server, memory = document["mp"], document["storage_manager"]
    seen = [
        server["worker_reap_timeout_seconds"],
        server["worker_registration_grace_seconds"],
        server["session_ttl_seconds"],
        memory["l1_manager_config"]["write_ttl_seconds"],
        memory["l1_manager_config"]["read_ttl_seconds"],
        memory["eviction_config"]["trigger_watermark"],
        memory["eviction_config"]["eviction_ratio"],
    ]
    assert seen == [float(value) for value in options.values()]


def test_a_server_for_everybody_says_so() -> None:
    with served("--http-host", "0.0.0.0") as running:
        running.process.send_signal(signal.SIGTERM)
        code, said = running.end()
    assert code == 0
    assert said.startswith("bench-server: warning: open to the network: http://0.0.0.0:")
    assert said.count("\n") == 1


@pytest.mark.parametrize("host", ["a..b", ".", "no.such.host.invalid"])
@pytest.mark.parametrize("option", ["--host", "--http-host"])
def test_a_host_that_is_none_is_one_line(option: str, host: str) -> None:
    # A process of its own: one that has served ignores signals from then on.
    words = ("serve", *SMALL, option, host)
    process = start(*words, variables=own_environment(), stderr=subprocess.PIPE)
    stdout, stderr = process.communicate(READY_S)
    assert (process.returncode, stdout) == (1, "")
    assert stderr.startswith("bench-server: error: cannot listen on ")
    assert stderr.count("\n") == 1


def test_an_ipv6_address_is_shown_as_urls_have_it() -> None:
    with served("--host", "::1", "--http-host", "::1") as running:
        assert re.search(r"tcp://\[::1\]:\d+, http://\[::1\]:\d+,", running.banner)


def test_a_tier_that_keeps_no_bytes_is_told() -> None:
    with served("--l2", "mock://1/", "--l2", "mock://2/?data=discard") as running:
        assert running.process.stdout is not None
        line = running.process.stdout.readline()
    assert line.startswith("L2 mock://2/?data=discard keeps sizes and no bytes")


def test_a_log_that_nobody_reads_is_no_end() -> None:
    """Whoever is worth a line must not end the server when the line cannot be written."""
    with served() as running:
        assert running.process.stderr is not None
        running.process.stderr.close()
        port = int(running.url.rpartition(":")[2])
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port), timeout=END_S) as client:
                client.sendall(b"FOO / HTTP/1.1\r\n\r\n")
                assert client.recv(100).startswith(b"HTTP/1.0 400")
        assert get(f"{running.url}/healthcheck")[0] == 200
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(END_S) == 0


def test_the_faults_are_listed() -> None:
    result = invoke("serve", "--help-faults")
    assert result.exit_code == 0
    assert "late_reply:op=RETRIEVE,delay=1500ms" in result.stdout

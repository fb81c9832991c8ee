"""The bench against `serve --l2 mooncake://`: what L1 has lost comes back, proven."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchserver.embedded import own_environment
from tests.mitm.bench import SMALL_SPEC, assert_proven, run_bench
from tests.mitm.forked import ROOT
from tests.mitm.forkedserver import ForkedServer, forked_server
from tests.mooncake.master import Master, running_master
from tests.real.serverprocess import free_ports

pytestmark = pytest.mark.mooncake

SEQUENCES = 4
SEEDED = (
    *("--kvcache-shape-spec", SMALL_SPEC),
    *("--end", str(SEQUENCES), "--interval", "0", "--seed", "11"),
)
START_LIMIT_S = 10.0


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    with running_master(tmp_path / "master.log") as running:
        yield running


def bench(server: ForkedServer, folder: Path, *options: str) -> None:
    """Run the baseline; print what it says, and fail unless all was proven."""
    ended = run_bench(server.urls, (*SEEDED, *options), folder / "report.json")
    print(f"$ bench-server {' '.join((*SEEDED, *options))}\n{ended.stdout}")
    assert_proven(ended, SEQUENCES)


def clear_l1(server: ForkedServer) -> None:
    request = urllib.request.Request(
        f"{server.urls.http_url}/cache/clear",
        data=b'{"force": true}',
        headers={"Content-Type": "application/json"},
        method="POST",
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("mode", ["lmcache_driven", "engine_driven"])
def test_the_store_answers_what_l1_has_lost(master: Master, tmp_path: Path, mode: str) -> None:
    options = ("--transfer-mode", mode, "--tp-size", "2")
    with forked_server("--l2", master.url()) as server:
        bench(server, tmp_path, *options)
        clear_l1(server)
        bench(server, tmp_path, *options, "--expect-warm")


def test_another_server_finds_what_one_stored(master: Master, tmp_path: Path) -> None:
    with forked_server("--l2", master.url()) as server:
        bench(server, tmp_path)
        with forked_server("--l2", master.url(segment_gb=0)) as other:
            bench(other, tmp_path, "--expect-warm")


def test_a_server_finds_its_chunks_after_a_restart(master: Master, tmp_path: Path) -> None:
    """Where another client's segment holds them; a server's own goes with it."""
    with forked_server("--l2", master.url()):
        with forked_server("--l2", master.url(segment_gb=0)) as server:
            bench(server, tmp_path)
        with forked_server("--l2", master.url(segment_gb=0)) as server:
            bench(server, tmp_path, "--expect-warm")
            server.kill()
        with forked_server("--l2", master.url(segment_gb=0)) as server:
            bench(server, tmp_path, "--expect-warm")


@pytest.mark.parametrize("missing", ["master", "metadata server"])
def test_what_cannot_be_reached_is_one_line_and_exit_1(master: Master, missing: str) -> None:
    dead = str(free_ports(1)[0])
    port = master.port if missing == "master" else master.metadata_port
    url = master.url().replace(f":{port}", f":{dead}")
    started = time.monotonic()
    command = [sys.executable, "-m", "benchserver", "serve", "--port", "0", "--http-port", "0"]
    ended = subprocess.run(
        [*command, "--l1-size-gb", "0.0625", "--l2", url],
        cwd=ROOT,
        env=own_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert time.monotonic() - started < START_LIMIT_S
    assert ended.returncode == 1
    assert ended.stdout == ""
    print(ended.stderr)
    assert f"Mooncake's {missing} at 127.0.0.1:{dead}: Connection refused" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1

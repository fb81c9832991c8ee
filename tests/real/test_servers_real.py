"""What the table says of a release, held against its own server; needs no dialect."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from protocol.dialects import release_of
from tests.mitm.memory import SHM_DIR
from tests.real.conftest import Environment

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

LAUNCHER = Path(__file__).with_name("launcher.py")
SMALL = ("--l1-size-gb", "0.25")
SMALL_BYTES = 1 << 28
POOL = "lmcache_l1_pool_"
WITHIN_S = 90.0


def fetched(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def test_offers_what_its_row_says(environment: Environment) -> None:
    release = environment.release
    shown = subprocess.run(
        [str(Path(environment.python).parent / "lmcache"), "server", "--help"],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=True,
    ).stdout
    words = re.search(rf"{release.mode_option} \{{([a-z_,]+)\}}", shown)
    assert words, shown
    assert set(words.group(1).split(",")) == set(release.mode_words.values())
    assert ("--shm-name SHM_NAME" in shown) == release.has_pool


def test_serves_without_a_pool(environment: Environment) -> None:
    with environment.start(*SMALL) as running:
        assert release_of(fetched(f"{running.urls.http_url}/version")) == environment.release.name
        manager = fetched(f"{running.urls.http_url}/status")["storage_manager"]
        assert manager["l1_manager"]["memory_total_bytes"] == SMALL_BYTES
        assert not (SHM_DIR / f"{POOL}{running.process.pid}").exists()
    assert running.process.returncode == -signal.SIGTERM


def test_a_pool_is_there_and_goes(environment: Environment) -> None:
    if not environment.release.has_pool:
        pytest.skip(f"{environment.release.name} has no pool")
    name = f"bspool{os.getpid()}"
    with environment.start(*SMALL, pool=name):
        assert (SHM_DIR / f"{POOL}{name}").stat().st_size == SMALL_BYTES
    assert not (SHM_DIR / f"{POOL}{name}").exists()


def test_the_script_runs_it_until_a_signal(environment: Environment) -> None:
    name = environment.release.name
    with subprocess.Popen(
        [environment.python, str(LAUNCHER), "run", name, *SMALL],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            ports = json.loads(process.stdout.readline())
            version = fetched(f"http://127.0.0.1:{ports['http_port']}/version")
            process.terminate()
            assert process.wait(WITHIN_S) == 0
        finally:
            process.terminate()
    assert release_of(version) == ports["release"] == name
    with pytest.raises(OSError, match="refused"):
        fetched(f"http://127.0.0.1:{ports['http_port']}/version")

"""Every fault of the table between bench-server and the real LMCache server: each is caught."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mitm.bench import assert_caught, options_for, run_bench
from tests.mitm.faults import FAULTS, HANDLE, INLINE, SHM
from tests.mitm.running import Urls, running_proxy
from tests.real.conftest import AUTO, StartServer

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

KILLS = "kill_server"


def names(transport: str) -> list[str]:
    return [f.name for f in FAULTS.values() if f.transport == transport and f.name != KILLS]


def check(name: str, server: Urls, tmp_path: Path) -> None:
    fault = FAULTS[name]
    with running_proxy(fault, server) as urls:
        ended = run_bench(urls, options_for(fault), tmp_path / "report.json")
    assert_caught(ended, fault)


@pytest.mark.parametrize("name", names(HANDLE))
def test_handle_fault(name: str, real: Urls, tmp_path: Path) -> None:
    check(name, real, tmp_path)


@pytest.mark.parametrize("name", names(INLINE))
def test_inline_fault(name: str, real: Urls, tmp_path: Path) -> None:
    check(name, real, tmp_path)


@pytest.mark.parametrize("name", names(SHM))
def test_shm_fault(name: str, real_pooled: Urls, tmp_path: Path) -> None:
    check(name, real_pooled, tmp_path)


def test_killed_server(start_server: StartServer, tmp_path: Path) -> None:
    fault = FAULTS[KILLS]
    with (
        start_server(*AUTO) as running,
        running_proxy(fault, running.urls, kill=running.kill) as urls,
    ):
        ended = run_bench(urls, options_for(fault), tmp_path / "report.json")
    assert_caught(ended, fault)

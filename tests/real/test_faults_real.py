"""Every fault of the table between bench-server and the real LMCache server: each is caught."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.mitm.bench import assert_caught, options_for, run_bench
from tests.mitm.fault import HANDLE, INLINE, SHM
from tests.mitm.faults import FAULTS
from tests.mitm.running import Urls, running_proxy
from tests.real.conftest import StartServer

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(240),
    pytest.mark.usefixtures("in_depth"),
]

KILLS = "kill_server"


def table(transport: str) -> list[Any]:
    """Return the faults of one transport; what is a known gap must fail, until it is closed."""
    return [
        pytest.param(
            fault.name,
            marks=[pytest.mark.xfail(strict=True, reason=fault.gap)] if fault.gap else [],
        )
        for fault in FAULTS.values()
        if fault.transport == transport and fault.name != KILLS
    ]


def check(name: str, server: Urls, tmp_path: Path) -> None:
    fault = FAULTS[name]
    with running_proxy(fault, server) as urls:
        ended = run_bench(urls, options_for(fault), tmp_path / "report.json")
    assert_caught(ended, fault)


@pytest.mark.parametrize("name", table(HANDLE))
def test_handle_fault(name: str, real: Urls, tmp_path: Path) -> None:
    check(name, real, tmp_path)


@pytest.mark.parametrize("name", table(INLINE))
def test_inline_fault(name: str, real: Urls, tmp_path: Path) -> None:
    check(name, real, tmp_path)


@pytest.mark.parametrize("name", table(SHM))
def test_shm_fault(name: str, real_pooled: Urls, tmp_path: Path) -> None:
    check(name, real_pooled, tmp_path)


def test_killed_server(start_server: StartServer, tmp_path: Path) -> None:
    fault = FAULTS[KILLS]
    with (
        start_server() as running,
        running_proxy(fault, running.urls, kill=running.kill) as urls,
    ):
        ended = run_bench(urls, options_for(fault), tmp_path / "report.json")
    assert_caught(ended, fault)

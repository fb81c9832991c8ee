"""What a run takes from outside, the real things: as many threads as help, pools as asked for."""

from __future__ import annotations

import os
import threading

import pytest

from benchserver.stage.outside import load_pools, open_http, start_threads
from benchserver.stage.pools import GpuPools, HostPools
from tests.benchserver.stage.runs import SPEC, MakeConfig, MakeEngine


@pytest.mark.parametrize(
    ("mode", "cpus", "tp_size", "threads"),
    [
        ("cpu", 2, 1, 2),
        ("cpu", 64, 8, 4),
        ("gpu", 2, 1, 2),
        ("gpu", 64, 1, 16),
        ("gpu", 4, 8, 9),  # each rank waits for events in one
    ],
)
def test_threads_are_as_many_as_help(
    make_engine: MakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    cpus: int,
    tp_size: int,
    threads: int,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    pool = start_threads(make_engine(mode=mode, tp_size=tp_size), tp_size)
    assert pool._max_workers == threads
    pool.shutdown()


def test_pools_lie_where_the_configuration_says(make_engine: MakeEngine) -> None:
    for mode, kind in (("cpu", HostPools), ("gpu", GpuPools)):
        engine = make_engine(mode=mode, spec=SPEC)
        pools = load_pools(engine, engine.geometry(64), b"\0", threading.Event(), 1)
        assert type(pools) is kind


@pytest.mark.asyncio
async def test_http_is_opened_at_the_url_and_asks_for_nothing_yet(make_config: MakeConfig) -> None:
    http = open_http(make_config(http_url="http://127.0.0.1:9").target)
    await http.close()

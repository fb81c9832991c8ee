"""Every workload against the embedded server: hits are those of an ideal cache, one by one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchserver.embedded import own_environment
from benchserver.load.workloads.parse import NAMES
from tests.benchserver.load.workloads.bound import TRACE
from tests.mitm.bench import WITHIN_S
from tests.mitm.forked import start
from tests.mitm.forkedserver import forked_server
from tests.mitm.running import Urls

REQUESTS = 12

WORKLOADS = {
    "unique": (0, REQUESTS * 4),
    "shared-prefix:50": (11 * 2, REQUESTS * 4),
    "prefix-tree:branching=2,depth=2,own=25": (None, REQUESTS * 4),
    "chat:turns=4,users=3,system=25,think=0": (None, None),
    "churn:0.05,l1=10MiB": (None, REQUESTS * 4),
    TRACE: (4 + 6, 5 + 6 + 7),
}
"""Each with its hits and the chunks that are asked for, where they are counted by hand."""


@pytest.fixture(scope="module")
def server() -> Iterator[Urls]:
    with forked_server() as running:
        yield running.urls


def load(server: Urls, report: Path, *options: str) -> dict[str, Any]:
    """Return the report of a load of small requests that passed."""
    process = start(
        *("load", "--mode", "cpu", "--seed", "3", "--json", str(report)),
        *("--rpc-url", server.rpc_url, "--url", server.http_url),
        *("--kvcache-shape-spec", "(2,1024,16,1,8):float16:1", "--num-tokens", "1024"),
        *options,
        variables=own_environment(),
        stderr=subprocess.PIPE,
    )
    stdout, stderr = process.communicate(WITHIN_S)
    assert process.returncode == 0, f"{stdout}\n{stderr}"
    document: dict[str, Any] = json.loads(report.read_bytes())["load"]
    return document


@pytest.mark.parametrize("workload", WORKLOADS)
def test_one_request_at_a_time_hits_what_an_ideal_cache_does(
    server: Urls, tmp_path: Path, workload: str
) -> None:
    ends = () if workload == TRACE else ("--requests", str(REQUESTS))
    salt = ("--cache-salt", f"w{list(WORKLOADS).index(workload)}")
    found = load(
        server,
        tmp_path / "load.json",
        *("--workload", workload, "--clients", "1", "--concurrency", "1", *ends, *salt),
    )
    hits, asked = WORKLOADS[workload]
    measured, ideal = found["hits"]["measured"], found["hits"]["ideal_infinite"]
    assert measured == ideal
    assert hits in (None, measured["chunks"])
    assert asked in (None, found["hits"]["asked"]["chunks"])
    assert found["requests"]["done"] == (3 if workload == TRACE else REQUESTS)
    assert found["requests"]["failed"] == 0
    assert found["share_verified"] in (1.0, None)


def test_every_workload_is_played() -> None:
    assert {text.partition(":")[0] for text in WORKLOADS} == set(NAMES)

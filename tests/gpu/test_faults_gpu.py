"""Faults of the embedded server that touch data, with the pools in GPU memory: each is caught, by
the check that must catch it, and a server without a fault passes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from benchserver.embedded import own_environment
from tests.mitm.forked import ROOT

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(240)]

WITHIN_S = 180.0
JOBS = max(2, min(10, (os.cpu_count() or 1) * 5 // 8))
CONTROL = "none"
CAUGHT: Mapping[str, str] = {
    "noop_retrieve": "content",
    "half_retrieve": "content",
    "flip_byte": "content",
    "swap_chunks": "content",
    "layer_mixup": "content",
    "plane_mixup": "content",
    "rank_mixup": "content",
    "stale_data": "content",
    "canary_overwrite": "canaries",
    "source_overwrite": "source",
    "ignored_skip": "partial",
    "drop_store": "visibility",
    "refuse_retrieve": "retrieve",
    "digest_lies": "digests",
}
"""Each fault with the check that must name it."""

EARLY = "early_ack"
"""Harmless as it is, since the data is awaited; with a long delay it is caught as late."""

Runs = Sequence[Mapping[str, Any]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The self-test's runs of all these faults, a few at a time."""
    report = tmp_path_factory.mktemp("selftest") / "report.json"
    command = [sys.executable, "-m", "benchserver", "selftest", "--mode", "gpu"]
    command += ["--jobs", str(JOBS), "--json", str(report)]
    command += [word for name in (CONTROL, EARLY, *CAUGHT) for word in ("--only", name)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=own_environment(),
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=WITHIN_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)  # it ends its children
        said, _ = process.communicate(timeout=20.0)
        pytest.fail(f"the self-test did not end within {WITHIN_S:g} s:\n{said}")
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert report.exists(), said
    found: Runs = json.loads(report.read_bytes())["runs"]
    return found


def runs_of(fault: str, runs: Runs) -> Runs:
    found = [run for run in runs if run["fault"] == fault]
    assert found, f"no run of {fault}"
    return found


def test_without_a_fault_everything_is_proven(runs: Runs) -> None:
    for run in runs_of(CONTROL, runs):
        assert (run["exit"], run["wrong"]) == (0, ""), run
    assert {run["transport"] for run in runs_of(CONTROL, runs)} == {"handle", "shm", "inline"}


@pytest.mark.parametrize("fault", CAUGHT)
def test_the_fault_is_caught(fault: str, runs: Runs) -> None:
    found = runs_of(fault, runs)
    for run in found:
        assert run["wrong"] == "", run
        assert run["exit"] == 1, run
    mapped = [run for run in found if run["transport"] == "handle"]
    assert mapped, f"{fault} was never tried where the server maps the pool"
    assert {run["caught_by"] for run in mapped} == {CAUGHT[fault]}


def test_an_early_acknowledgement_is_caught_or_waited_for(runs: Runs) -> None:
    found = runs_of(EARLY, runs)
    for run in found:
        assert run["wrong"] == "", run
        assert run["exit"] == run["expected_exit"], run
    assert {run["expected_exit"] for run in found} == {0, 1}

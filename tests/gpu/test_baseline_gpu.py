"""bench-server in gpu mode, as a process against the embedded server: all shapes and transports,
killed and interrupted clients, and every error that a user can make."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchserver.embedded import own_environment
from benchserver.kv.layout import place_tensors
from shapespec import parse_shape_spec
from tests.acceptance import assert_nothing_left, status_of
from tests.gpu.conftest import READY_S
from tests.gpu.processes import (
    ASK_WITHIN_S,
    Plan,
    ask_devices,
    await_line,
    memory_names,
    run_beside,
    run_gpu_bench,
    start_gpu_bench,
    used_mib,
)
from tests.mitm.bench import Ended, assert_clean, assert_proven, await_bench
from tests.mitm.forked import ROOT
from tests.mitm.running import Urls
from tests.mitm.servers import Server, embedded_server

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

SMALL = "(2,128,16,2,8):float16:3"
MLA = "(1,128,16,1,576):bfloat16:4"
ENGINE = ("--transfer-mode", "engine_driven", "--require-transport")
HANDLE = ("--require-transport", "handle")
SEQUENCES = 3

TWO_GROUPS = "(1,128,16,1,576):bfloat16:2;(2,128,16,8,128):bfloat16:3"

CASES: Mapping[str, tuple[str, ...]] = {
    "two_groups": (TWO_GROUPS, *HANDLE),
    "uint8": ("(2,128,16,8,128):uint8:4", *HANDLE),
    "float32": ("(2,128,16,2,64):float32:3", *HANDLE),
    "odd_page": ("(2,640,2,1,3):uint8:3", *HANDLE),
    "odd_page_of_halves": ("(1,640,2,1,3):float16:3", *HANDLE),
    "tp2": (SMALL, *HANDLE, "--tp-size", "2"),
    "tp2_mla": (MLA, *HANDLE, "--tp-size", "2"),
    "driver": (SMALL, *HANDLE, "--cuda-ipc", "driver"),
    "driver_two_groups": (TWO_GROUPS, *HANDLE, "--cuda-ipc", "driver"),
    "engine_shm": (SMALL, *ENGINE, "shm"),
    "engine_shm_tp2_mla": (MLA, *ENGINE, "shm", "--tp-size", "2"),
    "parts": (SMALL, *HANDLE, "--partial-retrieve-every", "1"),
}
"""The odd pages have 6 and 12 bytes, no whole number of words."""

DEFAULT_SPEC = "default spec"
INLINE = "engine_inline"
TOO_LARGE = "(2,2000000,16,8,128):float16:32"
"""Four terabytes."""

SLACK_MIB = 192
"""What may come and go in a server without being anyone's pool: modules, a cached block."""

POOL_SPEC = "(2,512,16,8,128):float16:32"
"""One gibibyte: far more than SLACK_MIB."""

GRACE_S = 8.0
UNTIL_REAPED_S = 40.0


def options_of(case: tuple[str, ...]) -> list[str]:
    spec, *more = case
    options = ["--kvcache-shape-spec", spec, "--end", str(SEQUENCES), "--interval", "0"]
    return [*options, "--timeout", "30", *more]


@pytest.fixture(scope="module")
def ended(embedded_gpu: Urls, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """Every case's run, all made at once, each as a model of its own: layouts differ."""
    plans = {
        name: Plan(server=embedded_gpu, options=[*options_of(case), "--model-name", name])
        for name, case in CASES.items()
    }
    # With servers of their own: the first as a newcomer would start it.
    plans[DEFAULT_SPEC] = Plan(server=None, options=["--end", str(SEQUENCES), "--interval", "0"])
    inline = (SMALL, *ENGINE, "inline")
    plans[INLINE] = Plan(server=None, options=options_of(inline))
    return run_beside(plans, tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("name", [DEFAULT_SPEC, *CASES, INLINE])
def test_proves_every_byte(name: str, ended: Mapping[str, Ended]) -> None:
    run = ended[name]
    assert_proven(run, SEQUENCES)
    assert not memory_names(run.pid), run.explain()
    transport = run.report["server"]["transport"]
    assert transport == {"engine_shm": "shm", "engine_shm_tp2_mla": "shm", INLINE: "inline"}.get(
        name, "handle"
    )


@pytest.mark.parametrize("name", ["two_groups", "odd_page", "tp2_mla", "driver"])
def test_the_server_s_digests_were_compared(name: str, ended: Mapping[str, Ended]) -> None:
    check = ended[name].report["checks"]["digests"]
    assert check["passed"] > 0, ended[name].explain()
    assert check["not_evaluated"] == "left out: those of overwritten sources"


@pytest.mark.parametrize(("name", "ranks"), [("tp2", 2), ("tp2_mla", 2)])
def test_every_rank_retrieved(name: str, ranks: int, ended: Mapping[str, Ended]) -> None:
    latency = ended[name].report["latency"]
    assert latency["RETRIEVE"]["count"] == ranks * SEQUENCES
    assert latency["STORE"]["count"] == (SEQUENCES if name == "tp2_mla" else ranks * SEQUENCES)


def test_parts_were_retrieved(ended: Mapping[str, Ended]) -> None:
    assert ended["parts"].report["checks"]["partial"]["passed"] == SEQUENCES
    assert ended["parts"].report["latency"]["RETRIEVE part"]["count"] == SEQUENCES


def test_nothing_stays_on_the_server(embedded_gpu: Urls, ended: Mapping[str, Ended]) -> None:
    assert ended
    status = status_of(embedded_gpu)
    assert not status.handle_instances | status.engine_instances
    assert (status.active_sessions, status.read_locked, status.write_locked) == (0, 0, 0)


@pytest.fixture
def reaping_server() -> Iterator[Server]:
    """A server of its own that soon forgets clients which are gone."""
    grace = ("--worker-registration-grace-seconds", str(GRACE_S))
    reap = ("--worker-reap-timeout-seconds", str(GRACE_S))
    with embedded_server("--gpu", "--l1-size-gb", "0.5", *grace, *reap, ready_s=READY_S) as running:
        yield running


def test_a_killed_client_leaves_the_server_usable_and_no_memory(
    reaping_server: Server, tmp_path: Path
) -> None:
    server = reaping_server.urls
    options = ["--kvcache-shape-spec", POOL_SPEC, "--interval", "0", "--timeout", "30"]
    # One complete run first: what the server keeps for itself is then there.
    assert_proven(run_gpu_bench(server, [*options, "--end", "2"], tmp_path / "first.json"), 2)
    used, free = used_mib(), ask_devices().free
    victim = start_gpu_bench(server, options, tmp_path / "victim.json")
    try:
        await_line(victim, "[seq=1] CHECKSUM MATCH OK", ASK_WITHIN_S)
        pool_mib = (place_tensors(parse_shape_spec(POOL_SPEC))[1] >> 20) - SLACK_MIB
        assert max(used_mib()) - max(used) > pool_mib, "the pool is not on the device"
    finally:
        victim.kill()
        victim.communicate()
    second = run_gpu_bench(server, [*options, "--end", "3"], tmp_path / "second.json")
    assert_proven(second, 3)
    deadline = time.monotonic() + UNTIL_REAPED_S
    while status_of(server).handle_instances and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not status_of(server).handle_instances, "the dead client is still registered"
    # The second run has swept what the first one could not.
    assert not memory_names(victim.pid)
    assert _grown(used, used_mib()) <= SLACK_MIB, (used, used_mib())
    after = ask_devices().free
    lost_mib = max(then - now for then, now in zip(free, after, strict=True)) >> 20
    assert lost_mib <= SLACK_MIB, (free, after)


def _grown(before: list[int], after: list[int]) -> int:
    return max(now - then for then, now in zip(before, after, strict=True))


def interrupted(server: Urls, options: Sequence[str], words: str, report: Path) -> Ended:
    """Return how a run ends that gets Ctrl-C once it has said these words."""
    process = start_gpu_bench(server, options, report)
    try:
        await_line(process, words, ASK_WITHIN_S)
        process.send_signal(signal.SIGINT)
        return await_bench(process, report, within_s=30.0)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


EARLY = "before anything is proven"
INTERRUPTS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "lmcache_driven": ((SMALL, *HANDLE), "[seq=2] CHECKSUM MATCH OK"),
    "engine_driven": ((SMALL, *ENGINE, "shm"), "[seq=2] CHECKSUM MATCH OK"),
    EARLY: ((POOL_SPEC, *HANDLE), "Resolved KV shape spec"),
}
"""What runs for ever, and the words upon which it gets Ctrl-C: the last while torch is loaded."""


@pytest.fixture(scope="module")
def stopped(embedded_gpu: Urls, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """Every interrupted run, all made at once; nothing of them is left on the server."""
    before, folder = status_of(embedded_gpu), tmp_path_factory.mktemp("stopped")

    def interrupt(name: str) -> Ended:
        (spec, *more), words = INTERRUPTS[name]
        options = ["--kvcache-shape-spec", spec, "--interval", "0", "--model-name", name, *more]
        return interrupted(embedded_gpu, options, words, folder / f"{name}.json")

    with ThreadPoolExecutor(len(INTERRUPTS)) as threads:
        found = dict(zip(INTERRUPTS, threads.map(interrupt, INTERRUPTS), strict=True))
    assert_nothing_left(embedded_gpu, before)
    return found


@pytest.mark.parametrize("name", INTERRUPTS)
def test_ctrl_c_ends_cleanly(name: str, stopped: Mapping[str, Ended]) -> None:
    """Exit code 0 if what was finished is proven, 1 if nothing was."""
    run = stopped[name]
    assert_clean(run)
    assert not memory_names(run.pid)
    assert run.report["interrupted"] is True
    if name == EARLY:
        assert run.exit_code == 1, run.explain()
        assert "nothing is proven" in run.stdout
    else:
        assert run.exit_code == 0, run.explain()
        assert run.report["sequences"]["proven"] >= 3
        assert run.wall_s < 6.0, run.explain()


@pytest.fixture(scope="module")
def refused(embedded_gpu: Urls, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """Runs that cannot be, all made at once."""
    one = ["--end", "1", "--interval", "0", "--timeout", "4"]
    small = [*one, "--kvcache-shape-spec", SMALL]
    nothing = {"CUDA_VISIBLE_DEVICES": ""}
    with embedded_server(
        "--supported-transfer-mode", "lmcache_driven", ready_s=READY_S, environment=nothing
    ) as blind:
        plans = {
            "too large": Plan(
                server=embedded_gpu, options=[*one, "--kvcache-shape-spec", TOO_LARGE]
            ),
            "no device": Plan(server=embedded_gpu, options=small, environment=nothing),
            "blind server": Plan(server=blind.urls, options=small),
        }
        return run_beside(plans, tmp_path_factory.mktemp("refused"))


def the_error(run: Ended) -> str:
    """Return the one line that says what is wrong; everything else about its end must be right."""
    assert_clean(run)
    assert run.exit_code == 1, run.explain()
    assert not memory_names(run.pid)
    lines = (run.stdout + run.stderr).splitlines()
    found = [line for line in lines if re.match(r"bench-server: error: |run: ", line)]
    assert found, run.explain()
    return found[0]


def test_a_pool_that_does_not_fit_says_bytes_asked_for_and_free(
    refused: Mapping[str, Ended],
) -> None:
    line = the_error(refused["too large"])
    assert str(place_tensors(parse_shape_spec(TOO_LARGE))[1]) in line
    assert re.search(r"\d+ bytes free on cuda:0", line), line


def test_no_visible_device_is_said(refused: Mapping[str, Ended]) -> None:
    line = the_error(refused["no device"])
    assert "CUDA" in line


def test_a_server_without_the_device_is_told_from_its_silence(refused: Mapping[str, Ended]) -> None:
    """The server cannot map the pool and never answers REGISTER: the error names the device."""
    import torch

    line = the_error(refused["blind server"])
    assert "REGISTER_KV_CACHE" in line
    assert str(torch.cuda.get_device_properties(0).uuid).lower() in line


def test_a_server_for_gpus_without_any_does_not_start() -> None:
    command = [sys.executable, "-m", "benchserver", "serve", "--gpu", "--port", "0"]
    ended = subprocess.run(
        [*command, "--http-port", "0"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=ASK_WITHIN_S,
        cwd=ROOT,
        env={**own_environment(), "CUDA_VISIBLE_DEVICES": ""},
    )
    assert ended.returncode == 1, ended
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert "CUDA" in ended.stderr
    assert not ended.stdout


def test_ranks_spread_over_all_visible_devices(ended: Mapping[str, Ended]) -> None:
    """With one device all ranks are on it, with two each has its own."""
    import torch

    devices = ended["tp2"].report["config"]["devices"]
    count = torch.cuda.device_count()
    assert [device["rank"] for device in devices] == [0, 1]
    assert [device["number"] for device in devices] == [rank % count for rank in range(2)]
    for device in devices:
        facts = torch.cuda.get_device_properties(device["number"])
        assert (device["name"], device["uuid"]) == (facts.name, str(facts.uuid).lower())


def test_nothing_of_ours_is_left_on_this_machine(
    ended: Mapping[str, Ended], refused: Mapping[str, Ended]
) -> None:
    for run in (*ended.values(), *refused.values()):
        assert not memory_names(run.pid), run.explain()
        assert run.pid != os.getpid()

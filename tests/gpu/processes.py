"""GPU runs of bench-server as processes, and what a machine says of its devices.

Imports no torch: what needs it is asked of a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchserver.embedded import own_environment
from benchserver.kv.gpu.requirements import device_count
from tests.mitm.bench import Ended, await_bench
from tests.mitm.forked import ROOT
from tests.mitm.running import Urls

ASK_WITHIN_S = 90.0
"""A process that loads torch and starts CUDA takes some ten seconds of it at worst."""

RUN_WITHIN_S = 120.0

_ASK_DEVICES = """
import json, warnings
warnings.simplefilter("ignore")
import torch
print(json.dumps({
    "torch": torch.__version__,
    "cuda": torch.version.cuda,
    "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    "free": [torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count())],
}))
"""


def no_device_reason() -> str:
    """Return why there is no device to test with, or ""; asks the driver alone."""
    if device_count() > 0:
        return ""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = "" if shown is None else f" (CUDA_VISIBLE_DEVICES is {shown!r})"
    return f"the driver offers no CUDA device here{hidden}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """What a fresh process sees: names, and free bytes while it has a context of its own."""

    torch: str
    cuda: str
    names: tuple[str, ...]
    free: tuple[int, ...]


def ask_devices(within_s: float = ASK_WITHIN_S) -> Devices:
    """Ask a fresh process; raises RuntimeError, one line, if it cannot say."""
    try:
        ended = subprocess.run(
            [sys.executable, "-c", _ASK_DEVICES],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=within_s,
            env=own_environment(),
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"torch did not name its devices within {within_s:g} s") from error
    if ended.returncode != 0:
        said = ended.stderr.strip().splitlines() or ["nothing"]
        raise RuntimeError(f"torch cannot name its devices: {said[-1]}")
    told = json.loads(ended.stdout.splitlines()[-1])
    return Devices(
        torch=told["torch"],
        cuda=str(told["cuda"]),
        names=tuple(told["devices"]),
        free=tuple(told["free"]),
    )


def ask_driver(query: str, within_s: float = 30.0) -> list[str]:
    """Return nvidia-smi's answer to one query, a line a device; RuntimeError if there is none."""
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=within_s,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"nvidia-smi: {error}") from error
    if ended.returncode != 0:
        raise RuntimeError(f"nvidia-smi exited {ended.returncode}: {ended.stdout.strip()[:200]}")
    return [line.strip() for line in ended.stdout.splitlines() if line.strip()]


def used_mib() -> list[int]:
    """Return the used memory of every device in MiB, by nvidia-smi."""
    return [int(line) for line in ask_driver("memory.used")]


def start_gpu_bench(
    server: Urls | None,
    options: Sequence[str],
    report: Path,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start a GPU run against a server, or with `--embedded` against its own."""
    command = [sys.executable, "-m", "benchserver", "--mode", "gpu", "--json", str(report)]
    if server is None:
        command += ["--embedded"]
    else:
        command += ["--rpc-url", server.rpc_url, "--url", server.http_url]
    return subprocess.Popen(
        [*command, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**own_environment(), "PYTHONUNBUFFERED": "1", **(environment or {})},
        start_new_session=True,
    )


def run_gpu_bench(
    server: Urls | None,
    options: Sequence[str],
    report: Path,
    within_s: float = RUN_WITHIN_S,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run to the end, or until it is killed for taking too long."""
    return await_bench(start_gpu_bench(server, options, report, environment), report, within_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run that is made beside others; `server` None: with an embedded one of its own."""

    server: Urls | None
    options: Sequence[str]
    environment: Mapping[str, str] | None = None


def run_beside(
    plans: Mapping[str, Plan], folder: Path, within_s: float = RUN_WITHIN_S
) -> dict[str, Ended]:
    """Make all runs at once: most of each is loading torch."""

    def run(name: str) -> Ended:
        plan, report = plans[name], folder / f"{name}.json"
        return run_gpu_bench(plan.server, plan.options, report, within_s, plan.environment)

    with ThreadPoolExecutor(max(1, len(plans))) as threads:
        return dict(zip(plans, threads.map(run, plans), strict=True))


def await_line(process: subprocess.Popen[str], words: str, within_s: float) -> list[str]:
    """Return the lines up to the first that has these words; RuntimeError if it does not come.

    A process that says nothing is killed at the deadline, so that reading ends.
    """
    assert process.stdout is not None
    lines: list[str] = []
    deadline = time.monotonic() + within_s
    with ThreadPoolExecutor(1) as threads:
        while True:
            reading = threads.submit(process.stdout.readline)
            try:
                line = reading.result(max(0.0, deadline - time.monotonic()))
            except FutureTimeoutError:  # until 3.11 not the built-in one
                process.kill()
                raise RuntimeError(f"{words!r} not said within {within_s:g} s: {lines}") from None
            if not line:
                raise RuntimeError(f"{words!r} not said before it ended: {lines}")
            lines.append(line.rstrip())
            if words in line:
                return lines


def memory_names(pid: int) -> set[str]:
    """Return the names in /dev/shm that belong to a process of ours, torch's included."""
    folder = Path("/dev/shm")
    patterns = (f"bench_server_{pid}_*", f"torch_{pid}_*")
    return {path.name for pattern in patterns for path in folder.glob(pattern)}


def numbers_of(report: Mapping[str, Any], series: str) -> dict[str, float]:
    """Return a report's summary of one latency series, empty if there is none."""
    summary: dict[str, float] = report.get("latency", {}).get(series, {})
    return summary


def timed_lines(command: Sequence[str], within_s: float) -> tuple[int, list[tuple[float, str]]]:
    """Run a tool, killed after `within_s`; return its exit code, and its lines and their times."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**own_environment(), "PYTHONUNBUFFERED": "1"},
    )
    killer = threading.Timer(within_s, process.kill)
    killer.start()
    lines: list[tuple[float, str]] = []
    assert process.stdout is not None
    try:
        with process.stdout:
            for line in process.stdout:
                lines.append((time.perf_counter(), line.rstrip()))
        return process.wait(), lines
    finally:
        killer.cancel()
        process.kill()
        process.wait()

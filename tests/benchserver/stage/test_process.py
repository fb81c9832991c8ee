"""Whole processes that are told to stop: in time, with their reports, and nothing left behind."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchserver.embedded import own_environment
from benchserver.shmnames import SHM_DIR
from tests.mitm.bench import processes_of_session
from tests.mitm.forked import ROOT
from tests.mitm.forkedserver import forked_server
from tests.mitm.running import Urls

WITHIN_S = 10.0
"""Users are promised three seconds; this machine may be busy.  What is played takes a minute."""

SPEC = ("--kvcache-shape-spec", "(2,128,16,2,8):float16:2", "--interval", "0")
NOW = 'print("NOW", file=sys.stderr, flush=True)'

MAIN = """
import sys, threading, time
sys.argv[0] = "bench-server"
{patch}
from benchserver.__main__ import main
main()
"""

LOADING_TORCH = """
from benchserver.kv.gpu import requirements
requirements.device_count = lambda: 1
"""

MAKING_A_POOL = f"""
import mmap, os
from benchserver import shmnames
from benchserver.cuda import mark
from benchserver.kv.gpu import making, requirements
from benchserver.kv.placement import RankDevice
requirements.require_device = lambda: None
making.assign_devices = lambda ranks, nbytes: [
    RankDevice(rank=rank, number=rank, name="FAKE", uuid="u") for rank in range(ranks)
]
pages = []
def make_pool(*_, **__):
    mark.place()
    # As torch and the CUDA driver do, which keep them mapped.
    for name in (f"torch_{{os.getpid()}}_77_0", f"cuda.shm.0.{{os.getpid():x}}.1"):
        with open(shmnames.SHM_DIR / name, "x+b") as file:
            file.truncate(4096)
            pages.append(mmap.mmap(file.fileno(), 4096))
    {NOW}
    time.sleep(60)
making.make_pool = make_pool
"""

RESOLVING_NAMES = f"""
import socket
def getaddrinfo(*_, **__):
    {NOW}
    time.sleep(60)
socket.getaddrinfo = getaddrinfo
"""

STANDING_STILL = f"""
from benchserver.stage.stage import Stage
async def conclude(*_, **__):
    {NOW}
    time.sleep(60)
Stage.conclude = conclude
"""

CHILD_STARTS = f"""
from benchserver import embedded
real = embedded._await_ready
def await_ready(*args):
    {NOW}
    return real(*args)
embedded._await_ready = await_ready
"""

CHILD_STOPS = f"""
from benchserver import embedded
real = embedded._stop
def stop(*args):
    {NOW}
    time.sleep(1)
    real(*args)
embedded._stop = stop
"""


class Bench:
    """A bench that was started, with something in it played, and is at the moment of interest."""

    def __init__(self, patch: str, *options: str, report: Path, path: Path | None = None) -> None:
        self.report = report
        reports = ("--json", str(report), "--junit", str(report.with_suffix(".xml")))
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAIN.format(patch=patch), *options, *SPEC, *reports],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**own_environment(), "PYTHONPATH": str(path or "")},
            start_new_session=True,
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        assert line == "NOW\n", line + self.process.stderr.read()

    def end(self, *numbers: signal.Signals, pause_s: float = 0.1) -> tuple[int, str, str]:
        """Send signals, and return exit code, stdout and stderr; fails if that takes too long."""
        started = time.monotonic()
        try:
            for number in numbers[:-1]:
                self.process.send_signal(number)
                time.sleep(pause_s)  # of the process's own time: whether it is one signal or two
            self.process.send_signal(numbers[-1])
            stdout, stderr = self.process.communicate(timeout=20)
            assert time.monotonic() - started < WITHIN_S
        finally:
            self.process.kill()
            self.process.wait()
        assert "Traceback" not in stdout + stderr
        assert not list(SHM_DIR.glob(f"bench_server_{self.process.pid}_*"))
        return self.process.returncode, stdout, stderr

    def document(self) -> dict[str, Any]:
        """Return the JSON report; the other one must be there, too."""
        assert self.report.with_suffix(".xml").read_bytes()
        document: dict[str, Any] = json.loads(self.report.read_bytes())
        return document


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return tmp_path / "report.json"


@pytest.fixture(scope="module")
def server() -> Iterator[Urls]:
    with forked_server() as running:
        yield running.urls


def gpu_options(server: Urls) -> tuple[str, ...]:
    return ("--mode", "gpu", "--rpc-url", server.rpc_url, "--url", server.http_url)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_torch_that_loads_does_not_hold_up_the_end(
    server: Urls, report: Path, tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(f"import sys, time\n{NOW}\ntime.sleep(60)\n")
    bench = Bench(LOADING_TORCH, *gpu_options(server), report=report, path=tmp_path)
    code, stdout, stderr = bench.end(number)
    assert (code, stderr) == (1, "")
    assert "RESULT: UNPROVEN (exit 1)" in stdout
    assert bench.document()["interrupted"] is True


@pytest.mark.parametrize(("signals", "pause_s"), [(1, 0.0), (5, 0.02), (2, 0.6)])
def test_a_pool_that_is_being_made_does_not_hold_up_the_end(
    server: Urls, report: Path, signals: int, pause_s: float
) -> None:
    bench = Bench(MAKING_A_POOL, *gpu_options(server), report=report)
    files = [f"torch_{bench.process.pid}_77_0", f"cuda.shm.0.{bench.process.pid:x}.1"]
    try:
        code, _, stderr = bench.end(*[signal.SIGINT] * signals, pause_s=pause_s)
        assert (code, stderr) == (1, "")
        assert not [name for name in files if (SHM_DIR / name).exists()]
    finally:
        for name in files:
            (SHM_DIR / name).unlink(missing_ok=True)


def test_an_event_loop_that_stands_still_ends_the_process(report: Path) -> None:
    bench = Bench(STANDING_STILL, "--embedded", "--stall-after", "1", report=report)
    try:
        _, stderr = bench.process.communicate(timeout=60)
    finally:
        bench.process.kill()
        bench.process.wait()
    assert bench.process.returncode == 1
    assert "in conclude\n" in stderr
    assert "bench-server: error: stalled: our own event loop stood still for 1 s" in stderr
    assert not list(SHM_DIR.glob(f"bench_server_{bench.process.pid}_*"))
    assert not processes_of_session(bench.process.pid)


def test_a_reader_that_stops_does_not_hold_up_the_end(server: Urls, report: Path) -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    command = [sys.executable, "-m", "benchserver", "--mode", "cpu", "--json", str(report), *SPEC]
    process = subprocess.Popen(
        [*command, "--rpc-url", server.rpc_url, "--url", server.http_url],
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=own_environment(),
    )
    try:
        while waiting_in(reader) < 4000:
            assert process.poll() is None
            time.sleep(0.05)
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=20)
        assert time.monotonic() - started < WITHIN_S
    finally:
        process.kill()
        process.wait()
        os.close(reader)
        os.close(writer)
    assert process.returncode == 1
    text = "bench-server: error: cannot write to standard output: nobody reads it, "
    assert stderr.startswith(text)
    assert stderr.count("\n") == 1
    document = json.loads(report.read_bytes())
    assert (document["exit_code"], document["interrupted"]) == (1, True)
    assert document["checks"]["residue"]["failed"] == 0
    with urllib.request.urlopen(f"{server.http_url}/status", timeout=20) as answer:
        status = json.load(answer)
    assert (status["registered_gpu_ids"], status["active_sessions"]) == ([], 0)


def waiting_in(pipe: int) -> int:
    """Return how many bytes wait in a pipe."""
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"0000"))[0])


def test_names_that_are_being_resolved_do_not_hold_up_the_end(report: Path) -> None:
    options = ("--mode", "cpu", "--rpc-url", "tcp://nowhere.invalid:1")
    bench = Bench(RESOLVING_NAMES, *options, report=report)
    code, _, stderr = bench.end(signal.SIGTERM)
    assert (code, stderr.replace("NOW\n", "")) == (1, "")
    assert bench.document()["interrupted"] is True


def test_a_signal_while_the_embedded_server_starts(report: Path) -> None:
    bench = Bench(CHILD_STARTS, "--embedded", "--end", "1", report=report)
    children = children_of(bench.process.pid)
    assert children
    code, stdout, stderr = bench.end(signal.SIGINT)
    text = "interrupted before the run began: nothing is proven"
    assert (code, stdout, stderr) == (1, "", f"bench-server: error: {text}\n")
    document = bench.document()
    assert document["checks"]["run"]["texts"] == [text]
    assert (document["interrupted"], document["exit_code"]) == (True, 1)
    assert not [pid for pid in children if processes_of_session(pid)]


@pytest.mark.parametrize(("signals", "pause_s", "code"), [(2, 0.1, 0), (2, 0.6, 1)])
def test_a_signal_while_the_embedded_server_stops(
    report: Path, signals: int, pause_s: float, code: int
) -> None:
    bench = Bench(CHILD_STOPS, "--embedded", "--end", "1", report=report)
    children = children_of(bench.process.pid)
    assert children
    ended, stdout, stderr = bench.end(*[signal.SIGTERM] * signals, pause_s=pause_s)
    assert (ended, stderr) == (code, "")
    assert "RESULT: PASS" in stdout
    assert bench.document()["exit_code"] == 0
    # A killed child is gone a moment after us, any other one before.
    deadline = time.monotonic() + (20.0 if code else 0.0)
    while any(map(processes_of_session, children)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def children_of(pid: int) -> list[int]:
    """Return the living children of a process; each has a session of its own."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split() if os.path.exists(f"/proc/{child}")]

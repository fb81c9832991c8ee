"""A server whose torch is broken, slow or stuck: it serves the others, and ends when told to."""

from __future__ import annotations

import asyncio
import itertools
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zmq

from benchserver.refserver.copier import Copier
from benchserver.refserver.gpu import runtime as cudaruntime
from benchserver.refserver.gpu.runtime import CudaRuntime, must_leave_at_once
from protocol import codec
from protocol.dialects import V056
from protocol.ops import Op
from tests.cudastage import cuda_handle
from tests.faultstage import SHAPE
from tests.httpstage import engine_of, serving

ROOT = Path(__file__).parents[4]
READY_S, WITHIN_S = 30.0, 20.0
QUICK_S = 10.0
"""An end takes a fraction of a second; on a busy machine more, but never a minute, as SLOW does."""

SMALL = ("--http-port", "0", "--l1-size-gb", "0.01")
POOL = f"cudaend-{os.getpid()}"
BEGINS = "torch is being loaded\n"
SLOW = f"import sys, time\nsys.stderr.write({BEGINS!r})\nsys.stderr.flush()\ntime.sleep(60)\n"
REGISTRATION: tuple[Any, ...] = (
    7,
    [cuda_handle(SHAPE)],
    "m",
    1,
    "vllm",
    {"kv_layout": "NHD"},
    [],
)


@dataclass
class Running:
    process: subprocess.Popen[str]

    def said(self) -> str:
        """Return the next line on stderr."""
        assert self.process.stderr is not None
        assert select.select([self.process.stderr], [], [], READY_S)[0]
        return self.process.stderr.readline()

    def end(self, number: int) -> tuple[int, str]:
        """Tell it to stop; return the exit code and the rest of stderr.  It has QUICK_S."""
        start_s = time.monotonic()
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=WITHIN_S)
        assert time.monotonic() - start_s < QUICK_S
        return self.process.returncode, said


@contextmanager
def started(folder: Path, source: str, *options: str) -> Iterator[Running]:
    """Start a server that finds this torch, whatever is installed."""
    (folder / "torch.py").write_text(source)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    process = subprocess.Popen(
        [sys.executable, "-m", "benchserver", "serve", *SMALL, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        yield Running(process)
    finally:
        process.kill()
        process.communicate()


def port_of(running: Running) -> int:
    out = running.process.stdout
    assert out is not None
    assert select.select([out], [], [], READY_S)[0]
    return int(out.readline().partition("tcp://127.0.0.1:")[2].partition(",")[0])


@contextmanager
def client(port: int) -> Iterator[zmq.Socket[bytes]]:
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 500)
    socket.connect(f"tcp://127.0.0.1:{port}")
    try:
        yield socket
    finally:
        socket.close()
        context.term()


_uids = itertools.count(1)


def send(socket: zmq.Socket[bytes], op: Op, *args: Any) -> None:
    socket.send_multipart(codec.encode_request(V056, next(_uids), op, args))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_loads_torch_ends_at_once_when_told_to(number: int, tmp_path: Path) -> None:
    with started(tmp_path, SLOW, "--port", "0", "--gpu", "--shm-name", POOL) as running:
        assert running.said() == BEGINS
        segment = Path(f"/dev/shm/lmcache_l1_pool_{POOL}")
        assert segment.exists()
        assert running.end(number) == (0, "")
        assert not segment.exists()


def test_so_does_one_that_loads_torch_for_a_client(tmp_path: Path) -> None:
    with started(tmp_path, SLOW, "--port", "0") as running, client(port_of(running)) as socket:
        send(socket, Op.REGISTER_KV_CACHE, *REGISTRATION)
        assert running.said() == BEGINS
        # Others are served meanwhile.
        with client(int(socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])) as other:
            send(other, Op.NOOP)
            assert other.poll(round(WITHIN_S * 1000))
        assert running.end(signal.SIGTERM) == (0, "")


@pytest.mark.parametrize("source", ["raise SystemExit(7)", "raise KeyboardInterrupt", "x = 1"])
def test_a_broken_torch_costs_the_gpu_client_its_registration_and_no_more(
    source: str, tmp_path: Path
) -> None:
    with started(tmp_path, source, "--port", "0") as running, client(port_of(running)) as socket:
        for _ in range(2):
            send(socket, Op.REGISTER_KV_CACHE, *REGISTRATION)
            line = running.said()
            assert line.startswith("embedded server: refused: REGISTER_KV_CACHE of instance ")
            assert ": GPU clients need PyTorch in this server" in line
        send(socket, Op.NOOP)
        assert socket.poll(round(WITHIN_S * 1000))
        assert running.end(signal.SIGTERM) == (0, "")


@pytest.mark.asyncio
async def test_a_thread_that_is_stuck_in_cuda_does_not_keep_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release, begun = threading.Event(), threading.Event()

    def stuck(*_: Any) -> Any:
        begun.set()
        assert release.wait(6 * WITHIN_S)
        raise KeyError("late")

    monkeypatch.setattr(CudaRuntime, "load", lambda *_: "")
    monkeypatch.setattr(CudaRuntime, "open", stuck)

    try:
        async with serving() as site, engine_of(site) as engine:
            await engine.give_up(Op.REGISTER_KV_CACHE, *REGISTRATION)
            assert await asyncio.to_thread(begun.wait, WITHIN_S)
            start_s = time.monotonic()
        assert time.monotonic() - start_s < QUICK_S
        assert must_leave_at_once()
    finally:
        release.set()
    end_s = time.monotonic() + WITHIN_S
    while must_leave_at_once() and time.monotonic() < end_s:  # noqa: ASYNC110 - a thread ends
        await asyncio.sleep(0.01)
    assert not must_leave_at_once()


@pytest.mark.asyncio
async def test_a_bug_in_a_handler_is_seen_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("a bug\nof ours")

    monkeypatch.setattr(cudaruntime.CudaRuntime, "load", fail)

    async with serving() as site, engine_of(site) as engine:
        await engine.give_up(Op.REGISTER_KV_CACHE, *REGISTRATION)
        assert await engine.store(1)
        assert site.lines == [
            "embedded server: unexpected: register_kv_cache: ZeroDivisionError: a bug of ours"
        ]
        metrics = (await site.ask("GET", "/metrics")).document
        labels = 'operation="register_kv_cache",outcome="unexpected"'
        assert f"bench_embedded_requests_total{{{labels}}} 1.0" in metrics
        site.lines.clear()  # else `serving` would not have it


@pytest.mark.asyncio
async def test_a_copier_whose_thread_is_stuck_says_so() -> None:
    begun, release, left_s = threading.Event(), threading.Event(), [1e9]

    def stuck() -> bool:
        begun.set()
        return release.wait(WITHIN_S)

    copier = Copier(1, name="refserver-test", left_s=lambda: left_s[0])
    assert copier.is_idle
    task = asyncio.ensure_future(copier.run(stuck))
    assert await asyncio.to_thread(begun.wait, WITHIN_S)
    assert not copier.is_idle
    task.cancel()
    assert not (await asyncio.wait([task], timeout=0.05))[0]
    left_s[0] = 0.0
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not copier.close(0)
    release.set()
    assert copier.close(WITHIN_S)
    assert copier.is_idle

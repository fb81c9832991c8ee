"""Memory at its peak: of this process, and of one that is watched."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from benchserver.environment import memory
from benchserver.environment.memory import MemoryWatch, ServerMemory, peak_bytes, used_bytes

URL = "tcp://127.0.0.1:5555"


def process(proc: Path, *, used_kib: int, peak_kib: int = 0) -> None:
    folder = proc / "41"
    folder.mkdir(exist_ok=True)
    (folder / "comm").write_text("lmcache\n")
    (folder / "status").write_text(f"VmHWM:\t{peak_kib} kB\nVmRSS:\t{used_kib} kB\n")


def test_what_proc_says(tmp_path: Path) -> None:
    process(tmp_path, used_kib=3, peak_kib=5)
    assert (peak_bytes("41", tmp_path), used_bytes("41", tmp_path)) == (5 * 1024, 3 * 1024)
    assert peak_bytes("42", tmp_path) is used_bytes("42", tmp_path) is None
    own = peak_bytes()
    assert own is not None
    assert own > 1 << 20


def test_the_most_that_was_seen_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = threading.Semaphore(0)
    sizes = iter([100, 300, 200])

    def used(pid: str, _proc: Path) -> int | None:
        looks.release()
        return next(sizes, None)

    monkeypatch.setattr(memory, "pid_listening", lambda *_: 41)
    monkeypatch.setattr(memory, "used_bytes", used)
    process(tmp_path, used_kib=0)
    watch = MemoryWatch(URL, proc=tmp_path, every_s=0.001)
    with watch.watching():
        for _ in range(4):
            assert looks.acquire(timeout=60)
    assert watch.seen == ServerMemory(pid=41, name="lmcache", peak_bytes=300)
    assert "memory-watch" not in {thread.name for thread in threading.enumerate()}


def test_a_short_run_has_a_last_look() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        watch = MemoryWatch(f"tcp://127.0.0.1:{server.getsockname()[1]}", every_s=3600.0)
        with watch.watching():
            pass
    assert watch.seen.pid == os.getpid()
    assert watch.seen.peak_bytes > 1 << 20


def test_a_server_elsewhere_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "pid_listening", None)
    watch = MemoryWatch("tcp://10.0.0.1:5555")
    with watch.watching():
        pass
    assert watch.seen.unseen == "the server is not on this host's loopback address"


def test_a_port_that_nobody_has_is_said(tmp_path: Path) -> None:
    watch = MemoryWatch(URL, proc=tmp_path, every_s=0.001)
    with watch.watching():
        pass
    assert watch.seen == ServerMemory(unseen="no process of ours was seen to listen on port 5555")


def test_without_a_thread_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    watch = MemoryWatch(URL)
    with watch.watching():
        pass
    assert watch.seen.unseen == "the run was over before it was looked for"

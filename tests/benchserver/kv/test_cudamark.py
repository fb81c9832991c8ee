"""Marks of processes that export GPU memory, with plain files, and what the next start sweeps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchserver.kv import cudamark, segment
from benchserver.kv.cudamark import (
    ProcessMark,
    counter_files,
    event_files,
    remove_files,
    remove_own_files,
)
from benchserver.kv.segment import sweep_stale

HOLDER = """
import os, sys
from benchserver.kv import segment
from pathlib import Path
segment.SHM_DIR = Path(sys.argv[1])
from benchserver.kv.cudamark import ProcessMark
mark = ProcessMark(3)
print(os.getpid(), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Put a folder in the place of /dev/shm."""
    monkeypatch.setattr(segment, "SHM_DIR", tmp_path)
    return tmp_path


def start_holder(folder: Path) -> tuple[subprocess.Popen[str], int]:
    """Start a process that places a mark; return it and its pid."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=10)


def leave_files(folder: Path, pid: int) -> set[str]:
    """Make what torch and CUDA make for a process, and files that only look like them."""
    theirs = {f"torch_{pid}_77_0", f"torch_{pid}_77_1", f"cuda.shm.0.{pid:x}.1"}
    for name in theirs:
        (folder / name).touch()
    others = {f"torch_{pid}9_77_0", f"cuda.shm.0.{pid:x}9.1", f"cuda.shm.{pid:x}.1", "torch_x"}
    for name in others:
        (folder / name).touch()
    return others


def test_a_mark_carries_our_pid_and_goes_when_it_is_told(folder: Path) -> None:
    mark = ProcessMark(5)
    (name,) = os.listdir(folder)
    assert name.startswith(f"bench_server_{os.getpid()}_")
    assert name.endswith("_r5")
    assert (folder / name).stat().st_size == 0
    mark.remove()
    mark.remove()
    assert os.listdir(folder) == []


def test_events_go_at_the_end_of_the_process_and_not_before(folder: Path) -> None:
    process, pid = start_holder(folder)
    others = leave_files(folder, pid)
    counters = {path.name for path in counter_files(pid)}
    process.communicate("\n", timeout=10)
    assert process.returncode == 0
    (mark,) = (path.name for path in folder.glob("bench_server_*"))
    # torch removes its own; nobody has told the mark to go.
    assert set(os.listdir(folder)) == others | counters | {mark}


def test_a_mark_that_cannot_be_made_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(segment, "SHM_DIR", tmp_path / "missing")
    ProcessMark(0).remove()
    assert os.listdir(tmp_path) == []


def test_the_files_of_a_process_are_told_by_its_pid(folder: Path) -> None:
    others = leave_files(folder, 4660)
    assert sorted(path.name for path in counter_files(4660)) == [
        "torch_4660_77_0",
        "torch_4660_77_1",
    ]
    assert [path.name for path in event_files(4660)] == ["cuda.shm.0.1234.1"]
    remove_files([*counter_files(4660), *event_files(4660), folder / "gone"])
    assert set(os.listdir(folder)) == others


def test_the_next_start_sweeps_all_of_a_killed_process(folder: Path) -> None:
    process, pid = start_holder(folder)
    end(process)
    others = leave_files(folder, pid)
    (swept,) = sweep_stale()
    assert swept.startswith(f"bench_server_{pid}_")
    assert set(os.listdir(folder)) == others
    assert sweep_stale() == ()


def test_nothing_is_swept_of_a_process_that_lives_where_its_pid_means_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, pid = start_holder(folder)
    try:
        leave_files(folder, pid)
        (mark,) = folder.glob("bench_server_*")
        # As seen from another container: no such pid.
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait()
        foreign = folder / f"bench_server_{dead.pid}_abc_r0"
        mark.rename(foreign)
        before = set(os.listdir(folder))
        assert sweep_stale() == ()
        assert set(os.listdir(folder)) == before
    finally:
        end(process)
    assert sweep_stale() == (foreign.name,)


def test_all_files_of_this_process_go_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cudamark, "_marks", [])
    others = leave_files(folder, os.getpid())
    before = set(os.listdir(folder))
    remove_own_files()
    # Nobody has exported anything: these are those of another container.
    assert set(os.listdir(folder)) == before
    first, second = ProcessMark(0), ProcessMark(1)
    first.remove()
    remove_own_files()
    assert set(os.listdir(folder)) == others
    second.remove()

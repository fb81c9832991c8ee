"""What a process has of CUDA and torch in /dev/shm: gone with it, or with the next run's sweep."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchserver import shmnames
from benchserver.cuda import mark
from benchserver.shmnames import sweep_stale

ROOT = Path(__file__).parents[3]
PROGRAM = """
import mmap, os, sys
from pathlib import Path
from benchserver import shmnames
from benchserver.cuda import mark
shmnames.SHM_DIR = Path(sys.argv[1])
def make(name):
    path = shmnames.SHM_DIR / name
    path.write_bytes(bytes(4096))
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 4096)
mark.place()
mark.place()
counter = make(f"torch_{os.getpid()}_77_0")
mark.note()
event = make(f"cuda.shm.{os.getuid()}.{os.getpid():x}.1")
mark.note()
#MORE
print(flush=True)
sys.stdin.read()
#LAST
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Put a folder in the place of /dev/shm."""
    monkeypatch.setattr(shmnames, "SHM_DIR", tmp_path)
    return tmp_path


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def made_by(pid: int) -> set[str]:
    return {f"torch_{pid}_77_0", f"cuda.shm.{os.getuid()}.{pid:x}.1"}


@contextmanager
def marked(folder: Path, more: str = "", last: str = "") -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("#MORE", more).replace("#LAST", last), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_all_of_a_killed_process_is_swept_and_not_before(folder: Path) -> None:
    with marked(folder) as process:
        # Of another process that has the same pid, in a container of its own.
        (folder / f"torch_{process.pid}_88_0").touch()
        (folder / f"cuda.shm.0.{process.pid:x}.2").touch()
        before = names_in(folder)
        (mark,) = (name for name in before if name.startswith(f"bench_server_{process.pid}_"))
        assert made_by(process.pid) < before
        assert sweep_stale() == ()
        assert names_in(folder) == before
        process.kill()
        process.wait()
        assert sweep_stale() == (mark,)
        assert names_in(folder) == before - made_by(process.pid) - {mark}


def test_an_orderly_end_leaves_torch_its_own_files(folder: Path) -> None:
    with marked(folder) as process:
        process.communicate("", timeout=60)
        assert process.returncode == 0
        assert names_in(folder) == {f"torch_{process.pid}_77_0"}


def test_an_end_at_once_leaves_nothing(folder: Path) -> None:
    with marked(folder, last="mark.remove_own_files(); os._exit(0)") as process:
        other = folder / f"torch_{process.pid}_88_0"  # not mapped: another process's
        other.touch()
        process.communicate("", timeout=60)
        assert process.returncode == 0
        assert names_in(folder) == {other.name}


@pytest.mark.parametrize("end", ["sys.exit()", "mark.remove_own_files(); os._exit(0)"])
def test_a_child_leaves_its_parents_files_alone(folder: Path, end: str) -> None:
    with marked(folder, more=f"if not os.fork():\n    {end}\nos.wait()\n") as process:
        assert len(names_in(folder)) == 3
        process.kill()
        process.wait()
        assert len(sweep_stale()) == 1
        assert names_in(folder) == set()


def test_a_process_without_a_mark_removes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mark, "_mark", None)
    (folder / f"torch_{os.getpid()}_77_0").touch()
    mark.note()
    mark.remove_own_files()
    assert len(names_in(folder)) == 1


def test_a_mark_that_cannot_be_made_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mark, "_mark", None)
    monkeypatch.setattr(shmnames, "SHM_DIR", folder / "missing")
    mark.place()
    mark.note()
    mark.remove_own_files()
    assert names_in(folder) == set()

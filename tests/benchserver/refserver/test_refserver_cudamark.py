"""What a server leaves in /dev/shm: nothing, or what the next run of a bench removes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchserver.kv import segment
from benchserver.kv.segment import sweep_stale

ROOT = Path(__file__).parents[3]
PROGRAM = """
import os, sys
from pathlib import Path
from benchserver.refserver import cudamark
cudamark._SHM_DIR = Path(sys.argv[1])
cudamark.place()
cudamark.place()
open(f"{sys.argv[1]}/cuda.shm.{os.getuid()}.{os.getpid():x}.1", "wb").close()
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Put a folder in the place of /dev/shm, where any run of a bench sweeps."""
    monkeypatch.setattr(segment, "SHM_DIR", tmp_path)
    return tmp_path


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def marked(folder: Path, more: str = "", before: str = "") -> Iterator[subprocess.Popen[str]]:
    program = PROGRAM.replace("print(", before + "print(") + more
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        assert process.stdout.readline() == "\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_what_a_killed_server_leaves_is_swept_and_not_before(folder: Path) -> None:
    with marked(folder) as process:
        mark, events = names_in(folder)
        assert mark.startswith(f"bench_server_{process.pid}_")
        assert events == f"cuda.shm.{os.getuid()}.{process.pid:x}.1"
        assert mark not in sweep_stale()
        assert names_in(folder) == [mark, events]
        process.kill()
        process.wait()
        assert mark in sweep_stale()
        assert names_in(folder) == []


def test_an_orderly_end_leaves_nothing(folder: Path) -> None:
    for more in ("", "cudamark.remove(); os._exit(0)"):
        with marked(folder, more) as process:
            assert len(names_in(folder)) == 2
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(30) == 0
            assert names_in(folder) == []


def test_a_child_leaves_its_parents_files_alone(folder: Path) -> None:
    fork = "if not os.fork():\n    sys.exit()\nos.wait()\n"
    with marked(folder, before=fork):
        assert len(names_in(folder)) == 2

"""What a server leaves in /dev/shm: nothing, or what the next run of a bench removes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchserver.kv.segment import sweep_stale

SHM = Path("/dev/shm")
ROOT = Path(__file__).parents[3]
PROGRAM = """
import os, sys
from benchserver.refserver import cudamark
cudamark.place()
cudamark.place()
open(f"/dev/shm/cuda.shm.{os.getuid()}.{os.getpid():x}.1", "wb").close()
print(flush=True)
sys.stdin.read()
"""


def files_of(pid: int) -> list[str]:
    patterns = (f"bench_server_{pid}_*", f"cuda.shm.*.{pid:x}.*")
    return sorted(path.name for pattern in patterns for path in SHM.glob(pattern))


@contextmanager
def marked(more: str = "", before: str = "") -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("print(", before + "print(") + more],
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
        for name in files_of(process.pid):
            (SHM / name).unlink()


def test_what_a_killed_server_leaves_is_swept_and_not_before() -> None:
    with marked() as process:
        mark, events = files_of(process.pid)
        assert mark.startswith(f"bench_server_{process.pid}_")
        assert events == f"cuda.shm.{os.getuid()}.{process.pid:x}.1"
        assert mark not in sweep_stale()
        assert files_of(process.pid) == [mark, events]
        process.kill()
        process.wait()
        assert mark in sweep_stale()
        assert files_of(process.pid) == []


def test_an_orderly_end_leaves_nothing() -> None:
    for more in ("", "cudamark.remove(); os._exit(0)"):
        with marked(more) as process:
            assert len(files_of(process.pid)) == 2
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(10) == 0
            assert files_of(process.pid) == []


def test_a_child_leaves_its_parents_files_alone() -> None:
    fork = "if not os.fork():\n    sys.exit()\nos.wait()\n"
    with marked(before=fork) as process:
        assert len(files_of(process.pid)) == 2

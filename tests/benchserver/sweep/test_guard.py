"""The guard as a process: whatever ends it, nothing of its command stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchserver.sweep import guard
from tests.benchserver.sweep.processes import (
    PYTHON,
    WITHIN_S,
    all_gone,
    lives,
    sleeper,
    written_pids,
)


@contextmanager
def guarded(*command: str, seconds: str = "20") -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, seconds, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[bytes]) -> int:
    return process.wait(WITHIN_S)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("raise SystemExit(0)", 0),
        ("raise SystemExit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
    ],
)
def test_the_exit_code_is_the_commands(text: str, code: int) -> None:
    with guarded(*PYTHON, text) as process:
        assert ended(process) == code


def test_a_command_that_is_not_there() -> None:
    with guarded("/nowhere/server") as process:
        assert ended(process) == 127
        assert process.stdout is not None
        assert process.stdout.read() == b"cannot run /nowhere/server: No such file or directory\n"


@pytest.mark.parametrize("apart", [False, True])
def test_the_end_of_input_ends_all(tmp_path: Path, apart: bool) -> None:
    with guarded(*sleeper(tmp_path / "pids", apart=apart)) as process:
        pids = written_pids(tmp_path / "pids")
        assert all(map(lives, pids))
        assert process.stdin is not None
        process.stdin.close()
        assert ended(process) == 128 + signal.SIGTERM
        assert all_gone(pids)


def test_what_hears_nothing_is_killed(tmp_path: Path) -> None:
    with guarded(*sleeper(tmp_path / "pids", deaf=True), seconds="0.1") as process:
        pids = written_pids(tmp_path / "pids")
        assert process.stdin is not None
        process.stdin.close()
        assert ended(process) == 128 + signal.SIGKILL
        assert all_gone(pids)


def test_a_number_is_what_it_is_given(tmp_path: Path) -> None:
    deaf = sleeper(tmp_path / "pids", deaf=True)
    with guarded(*deaf, seconds="100000") as process:
        pids = written_pids(tmp_path / "pids")
        assert process.stdin is not None
        process.stdin.write(b"0.1\n")
        process.stdin.flush()
        assert ended(process) == 128 + signal.SIGKILL
        assert all_gone(pids)


def test_without_its_guard_a_command_is_killed(tmp_path: Path) -> None:
    with guarded(*sleeper(tmp_path / "pids", deaf=True)) as process:
        pids = written_pids(tmp_path / "pids")
        leader = next(pid for pid in pids if os.getpgid(pid) == pid)
        process.kill()
        assert all_gone([leader])
    for pid in pids:
        if lives(pid):
            os.kill(pid, signal.SIGKILL)


def test_what_a_command_leaves_behind_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    text = sleeper(pids, apart=True)[-1].replace(
        "time.sleep(600)",
        f"""
while open({str(pids)!r}).read().count("\\n") < 2:
    time.sleep(0.02)
if os.getpgid(0) == os.getsid(0) == os.getpid() != int(open({str(pids)!r}).readline()):
    time.sleep(600)
""",
    )
    with guarded(*PYTHON, text) as process:
        found = written_pids(pids)
        assert ended(process) >= 0
        assert all_gone(found)

"""What signals do at each moment, and what an end at once undoes."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchserver import shmnames
from benchserver.cuda import mark
from benchserver.ending import Ending
from benchserver.errors import BEFORE

ROOT = Path(__file__).parents[2]


class Stage:
    """An ending that does not end the process, on a clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.done: list[object] = []
        self.ending = Ending(now_s=lambda: self.now_s, leave=self.done.append)


def mapped(path: Path) -> mmap.mmap:
    """Make a file and map it, as torch and the CUDA driver do with theirs."""
    path.write_bytes(bytes(4096))
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 4096)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_signal_before_the_run_ends_the_process_in_one_line(
    stage: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    stage.ending.on_signal()
    assert stage.done == [1]
    assert capfd.readouterr().err == f"bench-server: error: {BEFORE}\n"


def test_the_first_signal_stops_the_run_and_the_second_ends_the_process(
    stage: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    with stage.ending.running(lambda: stage.done.append("stop")):
        stage.ending.on_signal()
        assert stage.done == ["stop"]
        stage.now_s += 0.6
        stage.ending.on_signal()
    assert stage.done == ["stop", 1]
    assert capfd.readouterr() == ("", "")


def test_signals_that_come_together_are_one(stage: Stage) -> None:
    """A terminal and a `timeout` both deliver: the second would skip the cleaning."""
    with stage.ending.running(lambda: stage.done.append("stop")):
        for _ in range(4):
            stage.ending.on_signal()
            stage.now_s += 0.1
    assert stage.done == ["stop"]
    stage.now_s += 0.2
    stage.ending.on_signal()
    assert stage.done == ["stop", 1]


def test_the_first_signal_after_the_run_changes_nothing(stage: Stage) -> None:
    with stage.ending.asking():
        with stage.ending.running(lambda: stage.done.append("stop")):
            pass
        stage.ending.on_signal()
    assert stage.done == []
    stage.now_s += 1
    stage.ending.on_signal()
    assert stage.done == [1]


def test_a_patient_one_is_ended_by_no_other_signal(stage: Stage) -> None:
    """A server gives its chunks to L2 at its end, however often somebody presses Ctrl-C."""
    with stage.ending.running(lambda: stage.done.append("stop"), patient=True):
        for _ in range(3):
            stage.ending.on_signal()
            stage.now_s += 1
        assert stage.ending.seconds_left(10) == 10
    stage.ending.on_signal()
    assert stage.done == ["stop"]


def test_a_run_that_begins_after_a_signal_is_stopped_at_once(stage: Stage) -> None:
    with stage.ending.asking():
        assert not stage.ending.asked
        stage.ending.on_signal()
        assert stage.ending.asked
        assert stage.done == []
        with stage.ending.running(lambda: stage.done.append("stop")):
            assert stage.done == ["stop"]


def test_who_listens_no_more_is_not_called(stage: Stage) -> None:
    with stage.ending.asking():
        pass
    stage.ending.on_signal()
    assert stage.done == [1]


def test_an_end_at_once_undoes_the_last_first_whatever_fails(stage: Stage) -> None:
    def fail() -> None:
        raise OSError("gone")

    with stage.ending.undoing(lambda: stage.done.append("never")):
        pass
    with (
        stage.ending.undoing(lambda: stage.done.append("first")),
        stage.ending.undoing(fail),
        stage.ending.undoing(lambda: stage.done.append("last")),
    ):
        stage.ending.on_signal()
    assert stage.done == ["last", "first", 1]


def test_time_is_short_after_a_signal_alone(stage: Stage) -> None:
    assert stage.ending.seconds_left(10) == 10
    with stage.ending.asking():
        stage.ending.on_signal()
        assert stage.ending.seconds_left(1) == 1
        assert 2 < stage.ending.seconds_left(10) < 3
        stage.now_s += 2
        assert 0 < stage.ending.seconds_left(10) < 1
        stage.now_s += 2
        assert stage.ending.seconds_left(10) == 0


@pytest.mark.parametrize("asked", [False, True])
def test_threads_that_go_on_do_not_hold_up_the_end(stage: Stage, asked: bool) -> None:
    waited: list[float] = []

    def idle_within(seconds: float) -> bool:
        waited.append(seconds)
        return False

    with stage.ending.asking():
        if asked:
            stage.ending.on_signal()
        stage.ending.watch(lambda seconds: True)
        stage.ending.end(3, say=lambda: stage.done.append("said"))
        assert stage.done == []
        stage.ending.watch(idle_within)
        stage.ending.end(3, say=lambda: stage.done.append("said"))
    assert stage.done == ["said", 3]
    assert waited == [0.5 if asked else 2.0]


def test_what_is_undone_last_is_undone_after_all_else(stage: Stage) -> None:
    stage.ending.undo_last(lambda: stage.done.append("last"))
    with stage.ending.undoing(lambda: stage.done.append("first")):
        stage.ending.on_signal()
    assert stage.done == ["first", "last", 1]


def test_names_go_with_an_end_at_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shmnames, "SHM_DIR", tmp_path)
    monkeypatch.setattr(mark, "_mark", None)
    stage.ending.undo_last(mark.remove_own_files)
    mark.place()
    pages = [
        mapped(tmp_path / name)
        for name in (f"torch_{os.getpid()}_1_0", f"cuda.shm.0.{os.getpid():x}.1")
    ]
    assert len(list(tmp_path.iterdir())) == 3
    stage.ending.on_signal()
    assert list(tmp_path.iterdir()) == []
    for page in pages:
        page.close()


def test_handlers_are_lent_to_who_has_none(stage: Stage) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stage.ending.installed():
        assert signal.getsignal(signal.SIGTERM) == stage.ending.on_signal
        with stage.ending.installed():
            pass
        assert signal.getsignal(signal.SIGTERM) == stage.ending.on_signal
    assert signal.getsignal(signal.SIGTERM) == before


PROGRAM = """
import atexit, os, signal, sys
from benchserver.ending import Ending
from benchserver.errors import BEFORE
if sys.argv[1] == "nohup":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
ending = Ending()
ending.install()
atexit.register(lambda: os.kill(os.getpid(), signal.SIGTERM))
class Last:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGINT):
        kill(pid, number)  # when Python has given up its handlers
last = Last()
if sys.argv[1] == "nohup":
    os.kill(os.getpid(), signal.SIGHUP)
with ending.running(lambda: None):
    pass
sys.exit(7)
"""


@pytest.mark.parametrize("how", ["plain", "nohup"])
def test_signals_in_the_last_moments_change_nothing(how: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, how],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "", "")

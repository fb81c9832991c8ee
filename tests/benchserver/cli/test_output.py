"""Lines of a command, and the exit code of those that nobody could write."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from benchserver.cli import output
from benchserver.cli.output import Output
from benchserver.ending import Ending
from benchserver.outlet import Outlet, outlet_for
from benchserver.result import RunResult
from benchserver.stage import process
from tests.benchserver.cli.commandline import assert_one_line, invoke

GoodResult = Callable[..., RunResult]


def test_a_line_that_nobody_reads_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = Output(Ending())
    made.outlet = Outlet(no_room)
    made.outlet.line("lost")
    assert made.settled(0, lambda trouble: 1) == 1
    assert capsys.readouterr().err == (
        "bench-server: error: cannot write to standard output: No space left on device "
        "(exit 1, which would have been 0)\n"
    )


def gone(_: bytes) -> int:
    raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def test_a_reader_that_went_away_is_nothing_to_tell(capsys: pytest.CaptureFixture[str]) -> None:
    made = Output(Ending())
    made.outlet = Outlet(gone)
    made.outlet.line("lost")
    assert made.settled(0, lambda trouble: 1) == 0
    assert capsys.readouterr().err == ""


def test_a_reader_gets_a_moment_even_if_the_end_has_taken_all_the_time() -> None:
    """The lines after a signal were lost in three of four ends that took two seconds."""
    looked, read = threading.Event(), list[bytes]()

    def now_s() -> float:
        looked.set()
        return 200.0

    def write(data: bytes) -> int:
        assert looked.wait(30)
        read.append(data)
        return len(data)

    ending = Ending(now_s=lambda: 100.0, leave=lambda _: None)
    with ending.asking():
        ending.on_signal()
    ending._now_s = now_s
    made = Output(ending)
    made.outlet = Outlet(write)
    made.outlet.line("the last line")
    assert made.trouble() == ""
    assert b"".join(read) == b"the last line\n"


def no_room(_: bytes) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_lines_that_cannot_be_written_fail_the_run(
    monkeypatch: pytest.MonkeyPatch, good_result: GoodResult, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        process, "run_to_end", lambda config, scenario, reporter, ending, watchers: good_result()
    )
    real = outlet_for
    full = [Outlet(no_room)]
    monkeypatch.setattr(output, "outlet_for", lambda at: full.pop() if full else real(at))
    result = invoke("--mode", "cpu", "--json", "r.json")
    text = "cannot write to standard output: No space left on device"
    assert_one_line(result, 1, f"{text} (exit 1, which would have been 0)")
    document = json.loads((tmp_path / "r.json").read_text())
    assert (document["exit_code"], document["checks"]["run"]["texts"]) == (1, [text])

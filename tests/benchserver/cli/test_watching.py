"""Who looks at a run while it lasts."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchserver.cli import watching
from benchserver.cli.output import Output
from benchserver.cli.watching import line_a_minute, summary_on_signal, watchers_of
from benchserver.clock import NS_PER_S, VirtualClock
from benchserver.embedded import own_environment
from benchserver.ending import Ending
from benchserver.line import Line
from benchserver.monitor.snapshot import Snapshot
from benchserver.report.now import now_line
from benchserver.report.text import PlainPrinter, TextReporter
from benchserver.scenarios.baseline.lines import WORDING
from tests.benchserver.report.snapshots import snapshot
from tests.mitm.bench import ROOT


@pytest.mark.asyncio
async def test_a_signal_is_answered_on_the_loop_and_once_however_often_it_comes() -> None:
    told: list[list[Line]] = []
    answered = asyncio.Event()

    def tell(lines: object) -> None:
        told.append(list(lines))  # type: ignore[call-overload]
        answered.set()

    async with summary_on_signal(tell)(snapshot):
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGUSR1)
        assert told == []
        await asyncio.wait_for(answered.wait(), 30)
        answered.clear()
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(answered.wait(), 30)
    assert [lines[1].text for lines in told] == ["Verdict so far: nothing wrong so far"] * 2


@pytest.mark.asyncio
@pytest.mark.parametrize("shared", [False, True])
async def test_a_summary_goes_to_stderr(shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where lines go there as well, through their printer: a view may stand below them."""
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    output = Output(Ending(), to_stderr=shared)
    reporter = TextReporter(PlainPrinter(output.outlet), WORDING, quiet=True)
    answered = asyncio.Event()
    real = watching.summary_on_signal

    def summary(tell: object) -> object:
        def then(lines: object) -> None:
            tell(lines)  # type: ignore[operator]
            answered.set()

        return real(then)

    monkeypatch.setattr(watching, "summary_on_signal", summary)
    (watch,) = watchers_of(reporter, output, quiet=True)
    async with watch(snapshot):
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(answered.wait(), 30)
    assert output.trouble() == ""
    assert out.getvalue() == ""
    assert "Verdict so far: nothing wrong so far\n" in err.getvalue()


@pytest.mark.asyncio
async def test_a_line_a_minute() -> None:
    clock, told = VirtualClock(by_hand=True), list[str]()
    async with line_a_minute(told.append, clock)(snapshot):
        await clock.until_asleep(1)
        for minutes in (1, 2):
            await clock.move_ns(60 * NS_PER_S)
            await clock.until_asleep(1)
            assert told == [now_line(snapshot())] * minutes


@pytest.mark.asyncio
async def test_a_line_that_cannot_be_made_is_told_once_and_the_run_goes_on() -> None:
    clock, told, ended = VirtualClock(by_hand=True), list[str](), asyncio.Event()

    def note(text: str) -> None:
        told.append(text)
        ended.set()

    def fails() -> Snapshot:
        raise KeyError("STORE")

    async with line_a_minute(note, clock)(fails):
        await clock.until_asleep(1)
        await clock.move_ns(60 * NS_PER_S)
        await asyncio.wait_for(ended.wait(), 30)
    assert told == [
        "Without the line a minute from here on: KeyError: 'STORE'; that is a fault of bench-server"
    ]


def test_only_a_pipe_gets_a_line_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, quiet, count in (
        (io.StringIO(), False, 2),
        (io.StringIO(), True, 1),
        (Terminal(), False, 1),
    ):
        monkeypatch.setattr(sys, "stdout", stream)
        output = Output(Ending())
        reporter = TextReporter(PlainPrinter(output.outlet), WORDING, quiet=quiet)
        assert len(watchers_of(reporter, output, quiet=quiet)) == count


def test_a_run_that_is_asked_all_the_time_ends_as_it_would() -> None:
    """From its first line to its last: asked before the run, in it, and while it ends."""
    words = ["--embedded", "--start", "0", "--end", "40", "--interval", "0"]
    spec = ["--kvcache-shape-spec", "(2,128,16,2,8):float16:2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchserver", *words, *spec],
        cwd=ROOT,
        env=own_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    ignored = Path(f"/proc/{process.pid}/status")
    deadline_s = time.monotonic() + 60
    while not _answers(ignored) and time.monotonic() < deadline_s:
        time.sleep(0.001)  # Python itself is starting
    while process.poll() is None and time.monotonic() < deadline_s:
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.005)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, (out, err)
    assert "RESULT: PASS" in out
    assert "Verdict so far: nothing wrong so far\n" in err
    assert "no run is under way" in err
    assert "Traceback" not in err


def _answers(status: Path) -> bool:
    """Tell whether a process ignores SIGUSR1, or handles it."""
    number = 1 << (signal.SIGUSR1 - 1)
    masks = [line.split() for line in status.read_text().splitlines()]
    return any(
        int(words[1], 16) & number
        for words in masks
        if words and words[0] in ("SigIgn:", "SigCgt:")
    )

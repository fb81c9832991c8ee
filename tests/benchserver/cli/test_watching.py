"""Who looks at a run while it lasts."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import socket
import sys

import pytest

from benchserver.cli import watching
from benchserver.cli.output import Output
from benchserver.cli.watching import (
    line_a_minute,
    live_view,
    metrics_served,
    summary_on_signal,
    watchers_of,
)
from benchserver.clock import NS_PER_S, VirtualClock, idle
from benchserver.ending import Ending
from benchserver.line import Line
from benchserver.monitor.snapshot import Snapshot
from benchserver.report.now import now_line
from benchserver.report.text import PlainPrinter, TextReporter
from benchserver.scenarios.baseline.lines import WORDING
from tests.benchserver.cli.commandline import Runs, assert_one_line, invoke
from tests.benchserver.report.snapshots import snapshot


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
    printer = PlainPrinter(output.outlet)
    reporter = TextReporter(printer, WORDING, quiet=True)
    answered = asyncio.Event()
    real = watching.summary_on_signal

    def summary(tell: object) -> object:
        def then(lines: object) -> None:
            tell(lines)  # type: ignore[operator]
            answered.set()

        return real(then)

    monkeypatch.setattr(watching, "summary_on_signal", summary)
    (watch,) = watchers_of(reporter, printer, output, quiet=True, live=False)
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


@pytest.mark.parametrize(
    ("quiet", "live", "watchers"),
    [
        (False, False, ["summary_on_signal", "line_a_minute"]),
        (True, False, ["summary_on_signal"]),
        (False, True, ["summary_on_signal", "live_view"]),
        (True, True, ["summary_on_signal", "live_view"]),
    ],
)
def test_who_watches(quiet: bool, live: bool, watchers: list[str]) -> None:
    output = Output(Ending())
    printer = PlainPrinter(output.outlet)
    reporter = TextReporter(printer, WORDING, quiet=quiet)
    made = watchers_of(reporter, printer, output, quiet=quiet, live=live)
    assert [watch.__qualname__.partition(".")[0] for watch in made] == watchers


class View:
    """A printer that says what it was asked to do."""

    def __init__(self, fails_at: int = -1) -> None:
        self.done: list[str] = []
        self._fails_at = fails_at

    def write(self, line: Line) -> None:
        self.done.append(line.text)

    def show(self, now: Snapshot) -> None:
        self.done.append("show")

    def paint(self) -> None:
        self.done.append("paint")
        if len(self.done) == self._fails_at:
            raise ValueError("no room")

    def close(self) -> None:
        self.done.append("close")

    def restore(self) -> None:
        self.done.append("restore")


@pytest.mark.asyncio
async def test_the_view_is_painted_four_times_a_second_and_read_once() -> None:
    clock, view = VirtualClock(by_hand=True), View()
    async with live_view(view, view.done.append, clock)(snapshot):
        await clock.until_asleep(1)
        assert view.done == ["show", "paint"]
        await clock.move_ns(NS_PER_S)
        assert view.done == [*["show", *["paint"] * 4] * 1, "show", "paint"]
    assert view.done[7:] == ["close"]


@pytest.mark.asyncio
async def test_a_view_that_cannot_be_painted_gives_way_to_lines() -> None:
    clock, view = VirtualClock(by_hand=True), View(fails_at=2)
    async with live_view(view, view.done.append, clock)(snapshot):
        await idle()
        assert view.done == [
            "show",
            "paint",
            "close",
            "Without the live view from here on: ValueError: no room; that is a fault of "
            "bench-server",
        ]


@pytest.mark.asyncio
async def test_the_view_is_wiped_before_ctrl_z_stops_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, view, kill = VirtualClock(by_hand=True), View(), os.kill
    before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    try:
        monkeypatch.setattr(os, "kill", lambda *_: view.done.append("stopped"))
        async with live_view(view, view.done.append, clock)(snapshot):
            await clock.until_asleep(1)
            kill(os.getpid(), signal.SIGTSTP)
            assert view.done[2:] == ["restore", "stopped"]
    finally:
        signal.signal(signal.SIGTSTP, before)


def a_reporter(*, quiet: bool) -> tuple[TextReporter, View]:
    view = View()
    return TextReporter(view, WORDING, quiet=quiet), view


def test_no_metrics_unless_a_port_says_where() -> None:
    reporter, view = a_reporter(quiet=False)
    with metrics_served({"metrics_port": None, "metrics_host": None}, reporter) as served:
        assert served == ()
    assert view.done == []


@pytest.mark.asyncio
async def test_metrics_of_a_run_on_a_free_port_that_is_printed() -> None:
    reporter, view = a_reporter(quiet=True)
    with metrics_served({"metrics_port": 0, "metrics_host": "127.0.0.1"}, reporter) as served:
        (watch,) = served
        (line,) = view.done
        port = int(line.removesuffix("/metrics").rpartition(":")[2])
        assert line == f"Metrics for Prometheus at http://127.0.0.1:{port}/metrics"
        # Who asks before the run is answered by the run.
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        async with watch(snapshot):
            assert b"bench_server_calls_total 480.0\n" in await asyncio.wait_for(reader.read(), 30)
        writer.close()
    reporter, view = a_reporter(quiet=True)
    with metrics_served({"metrics_port": port, "metrics_host": None}, reporter):
        assert view.done == []


def test_a_port_that_is_in_use_is_wrong_usage_before_anything_begins(runs: Runs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        result = invoke("--mode", "cpu", "--metrics-port", port)
    assert_one_line(result, 2, f"--metrics-port {port}: cannot listen on 127.0.0.1", "in use")
    assert runs == []
    assert invoke("--mode", "cpu", "--metrics-port", port).exit_code == 0
    assert len(runs) == 1

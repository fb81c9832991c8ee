"""The text report: what is printed, when, and to whom."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any

import pytest

from benchserver.check.content import CONTENT
from benchserver.check.transfers import STORE
from benchserver.check.verdict import failed, passed
from benchserver.history import EndRecord, Outcome, SequenceRecord
from benchserver.line import BAD, FAINT, GOOD, PLAIN, Line
from benchserver.outlet import outlet_for
from benchserver.report.text import PlainPrinter, RichPrinter, TextReporter, make_printer
from benchserver.result import RunResult
from benchserver.scenarios.baseline.lines import WORDING

GoodSequence = Callable[..., SequenceRecord]
GoodResult = Callable[..., RunResult]


class Recorder:
    """A printer that remembers."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.done: list[int] = []
        self.closed = 0

    def write(self, line: Line) -> None:
        self.lines.append(line.text)

    def progress(self, done: int) -> None:
        self.done.append(done)

    def close(self) -> None:
        self.closed += 1

    def restore(self) -> None:
        pass


LOST = EndRecord(
    name="END_SESSION",
    request_id="r",
    began_ns=0,
    ended_ns=1,
    outcome=Outcome.UNKNOWN,
    reason="no answer",
)


def test_everything_is_told(good_sequence: GoodSequence, good_result: GoodResult) -> None:
    printer = Recorder()
    reporter = TextReporter(printer, WORDING, quiet=False)
    record = good_sequence()
    reporter.note("Connecting")
    for step in record.steps:
        reporter.step("seq=3", step)
    reporter.step("seq=3", LOST)
    reporter.concluded(record.label, [passed(CONTENT)])
    reporter.concluded(record.label, [failed(CONTENT, "bad")])
    assert printer.lines == [
        "Connecting",
        "[seq=3] LOOKUP cold:  0/2 chunks hit (0.25 ms)",
        "[seq=3] STORE:        2 chunks stored (2.00 ms)",
        "[seq=3] STORE:        2 chunks stored (2.00 ms) (rank 1)",
        "[seq=3] LOOKUP warm:  2/2 chunks hit (0.31 ms)",
        "[seq=3] RETRIEVE:     2 chunks retrieved (1.00 ms)",
        "[seq=3] RETRIEVE:     2 chunks retrieved (1.00 ms) (rank 1)",
        "[seq=3] END_SESSION: no answer",
        "[seq=3] CHECKSUM MATCH OK",
        "[seq=3] FAILED content: bad",
    ]
    assert printer.done == [1, 2]
    printer.lines.clear()
    reporter.finish(good_result())
    assert printer.closed == 1
    assert printer.lines[1].startswith("Sequences: 2 run")
    assert printer.lines[-1].startswith("RESULT: PASS")


def test_quiet_tells_of_a_good_run_in_one_line(
    good_sequence: GoodSequence, good_result: GoodResult
) -> None:
    printer = Recorder()
    reporter = TextReporter(printer, WORDING, quiet=True)
    record = good_sequence()
    reporter.note("Connecting")
    for step in record.steps:
        reporter.step("seq=3", step)
    reporter.concluded(record.label, [passed(CONTENT)])
    assert printer.lines == []
    assert printer.done == [1]
    reporter.finish(good_result())
    assert printer.lines == ["RESULT: PASS, everything asked for was proven (exit 0)"]


def test_quiet_tells_of_failures_and_how_to_replay_them(
    good_sequence: GoodSequence, good_result: GoodResult
) -> None:
    printer = Recorder()
    reporter = TextReporter(printer, WORDING, quiet=True)
    reporter.step("seq=3", LOST)
    reporter.concluded(good_sequence().label, [passed(STORE), failed(CONTENT, "bad")])
    result = good_result()
    result.ledger.add([failed(CONTENT, "bad")])
    reporter.finish(result)
    assert printer.lines[:2] == ["[seq=3] FAILED content: bad", "content: bad"]
    assert printer.lines[2].startswith("RESULT: FAIL (exit 1)")
    assert printer.lines[3].startswith("Replay: bench-server --mode cpu --seed 7 ")
    assert len(printer.lines) == 4


def test_close_without_a_result() -> None:
    printer = Recorder()
    TextReporter(printer, WORDING, quiet=False).close()
    assert printer.closed == 1


def test_plain_lines() -> None:
    stream = io.StringIO()
    outlet = outlet_for(stream)
    printer = PlainPrinter(outlet)
    for style in (PLAIN, GOOD, BAD, FAINT):
        printer.write(Line(f"{style} line", style))
    printer.progress(1)
    printer.close()
    printer.restore()
    assert outlet.drain(30) == ""
    assert stream.getvalue() == "plain line\ngood line\nbad line\nfaint line\n"


def test_a_terminal_gets_colour_and_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    outlet = outlet_for(terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    printer: Any = make_printer(2, outlet)
    assert isinstance(printer, RichPrinter)
    printer.write(Line("[seq=0] [bold]FAILED[/bold] :smile:", BAD))
    printer.write(Line("x" * 300))
    printer.progress(1)
    printer.close()
    printer.close()
    assert outlet.drain(30) == ""
    shown = terminal.getvalue()
    # Text is shown as it is, in one line however long, without markup of its own.
    assert "[seq=0] [bold]FAILED[/bold]" in shown
    assert "x" * 300 in shown
    assert "\x1b[1;31m" in shown


def test_a_pipe_gets_plain_lines() -> None:
    assert isinstance(make_printer(None, outlet_for(io.StringIO())), PlainPrinter)


def test_a_handler_of_signals_shows_the_cursor_again() -> None:
    """The bar hides it; the handler takes no lock, and writes before what waits."""
    terminal, other = os.openpty()
    try:
        with open(other, "w", closefd=False) as stream:
            outlet = outlet_for(stream)
            printer = make_printer(2, outlet)
            assert isinstance(printer, RichPrinter)
            shown = b""
            while b"\x1b[?25l" not in shown:
                shown += os.read(terminal, 1000)
            printer.restore()
            while b"\x1b[?25h" not in shown:
                shown += os.read(terminal, 1000)
            printer.close()
            assert outlet.drain(30) == ""
    finally:
        os.close(terminal)
        os.close(other)

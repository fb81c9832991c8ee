"""The text report: what is printed, when, and to whom."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from benchserver.check.verdict import Check, failed, passed
from benchserver.history import EndRecord, Outcome, SequenceRecord
from benchserver.report.lines import BAD, FAINT, GOOD, PLAIN, Line
from benchserver.report.text import PlainPrinter, RichPrinter, TextReporter, make_printer
from benchserver.result import RunResult

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


LOST = EndRecord(name="END_SESSION", request_id="r", outcome=Outcome.UNKNOWN, reason="no answer")


def test_everything_is_told(good_sequence: GoodSequence, good_result: GoodResult) -> None:
    printer = Recorder()
    reporter = TextReporter(printer, quiet=False)
    record = good_sequence()
    reporter.note("Connecting")
    for step in record.steps:
        reporter.step("seq=3", step)
    reporter.step("seq=3", LOST)
    reporter.sequence(record, [passed(Check.CONTENT)])
    reporter.sequence(record, [failed(Check.CONTENT, "bad")])
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
    reporter = TextReporter(printer, quiet=True)
    record = good_sequence()
    reporter.note("Connecting")
    for step in record.steps:
        reporter.step("seq=3", step)
    reporter.sequence(record, [passed(Check.CONTENT)])
    assert printer.lines == []
    assert printer.done == [1]
    reporter.finish(good_result())
    assert printer.lines == ["RESULT: PASS, everything asked for was proven (exit 0)"]


def test_quiet_tells_of_failures_and_how_to_replay_them(
    good_sequence: GoodSequence, good_result: GoodResult
) -> None:
    printer = Recorder()
    reporter = TextReporter(printer, quiet=True)
    reporter.step("seq=3", LOST)
    reporter.sequence(good_sequence(), [passed(Check.STORE), failed(Check.CONTENT, "bad")])
    result = good_result()
    result.ledger.add([failed(Check.CONTENT, "bad")])
    reporter.finish(result)
    assert printer.lines[:2] == ["[seq=3] FAILED content: bad", "content: bad"]
    assert printer.lines[2].startswith("RESULT: FAIL (exit 1)")
    assert printer.lines[3].startswith("Replay: bench-server --mode cpu --seed 7 ")
    assert len(printer.lines) == 4


def test_close_without_a_result() -> None:
    printer = Recorder()
    TextReporter(printer, quiet=False).close()
    assert printer.closed == 1


def test_plain_lines_are_flushed_one_by_one() -> None:
    class Stream(io.StringIO):
        flushed = 0

        def flush(self) -> None:
            self.flushed += 1

    stream = Stream()
    printer = PlainPrinter(stream)
    for style in (PLAIN, GOOD, BAD, FAINT):
        printer.write(Line(f"{style} line", style))
    printer.progress(1)
    printer.close()
    assert stream.getvalue() == "plain line\ngood line\nbad line\nfaint line\n"
    assert stream.flushed == 4


def test_a_reader_that_went_away_ends_nothing() -> None:
    """`bench-server | head -1`: the run goes on, and its exit code is its own."""
    program = (
        "import sys\n"
        "from benchserver.report.lines import Line\n"
        "from benchserver.report.text import PlainPrinter\n"
        "printer = PlainPrinter(sys.stdout)\n"
        "printer.write(Line('first'))\n"
        "sys.stdin.readline()\n"
        "for _ in range(3):\n"
        "    printer.write(Line('more'))\n"
        "sys.exit(7)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    assert child.stdout.readline() == b"first\n"
    child.stdout.close()
    child.stdin.write(b"\n")
    child.stdin.close()
    errors = child.stderr.read()
    child.stderr.close()
    assert (child.wait(30), errors) == (7, b"")


def test_a_terminal_gets_colour_and_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    printer: Any = make_printer(2)
    assert isinstance(printer, RichPrinter)
    printer.write(Line("[seq=0] [bold]FAILED[/bold] :smile:", BAD))
    printer.write(Line("x" * 300))
    printer.progress(1)
    printer.close()
    printer.close()
    shown = terminal.getvalue()
    # Text is shown as it is, in one line however long, without markup of its own.
    assert "[seq=0] [bold]FAILED[/bold]" in shown
    assert "x" * 300 in shown
    assert "\x1b[1;31m" in shown


def test_a_pipe_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    printer = make_printer(None)
    printer.write(Line("plain", BAD))
    assert stream.getvalue() == "plain\n"

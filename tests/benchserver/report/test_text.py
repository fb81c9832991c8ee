"""The text report: what is printed, when, and to whom."""

from __future__ import annotations

import io
from collections.abc import Callable

from benchserver.check.content import CONTENT
from benchserver.check.transfers import STORE
from benchserver.check.verdict import failed, passed
from benchserver.history import EndRecord, Outcome, SequenceRecord
from benchserver.line import BAD, FAINT, GOOD, PLAIN, Line
from benchserver.monitor.snapshot import Snapshot
from benchserver.outlet import outlet_for
from benchserver.report.live import LivePrinter
from benchserver.report.text import PlainPrinter, TextReporter, make_printer
from benchserver.result import RunResult
from benchserver.scenarios.baseline.lines import WORDING
from tests.benchserver.report.snapshots import snapshot

GoodSequence = Callable[..., SequenceRecord]
GoodResult = Callable[..., RunResult]


class Recorder:
    """A printer that remembers."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.closed = 0

    def write(self, line: Line) -> None:
        self.lines.append(line.text)

    def show(self, now: Snapshot) -> None:
        raise AssertionError("a reporter has no snapshots")

    def paint(self) -> None:
        raise AssertionError("nor does it paint")

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
    printer.show(snapshot())
    printer.paint()
    printer.close()
    printer.restore()
    assert outlet.drain(30) == ""
    assert stream.getvalue() == "plain line\ngood line\nbad line\nfaint line\n"


def test_what_somebody_asked_for_is_told_quiet_or_not() -> None:
    for quiet in (False, True):
        printer = Recorder()
        TextReporter(printer, WORDING, quiet=quiet).tell([Line("good", GOOD), Line("bad", BAD)])
        assert printer.lines == ["good", "bad"]


def test_which_printer_an_outlet_gets() -> None:
    outlet = outlet_for(io.StringIO())
    assert isinstance(make_printer(outlet, live=False), PlainPrinter)
    assert isinstance(make_printer(outlet, live=True), LivePrinter)

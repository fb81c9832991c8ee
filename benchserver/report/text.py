"""The text report: plain lines into a pipe, colour and a live view on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from benchserver.check.verdict import Finding
from benchserver.history import Step
from benchserver.line import BAD, Line, Wording
from benchserver.monitor.snapshot import Snapshot
from benchserver.outlet import Outlet
from benchserver.report.lines import summary_lines, verdict_lines, verdict_on
from benchserver.result import RunResult


class Printer(Protocol):
    """Where lines go."""

    def write(self, line: Line) -> None:
        """Write one line."""
        ...

    def show(self, now: Snapshot) -> None:
        """Take in what the run has come to."""
        ...

    def paint(self) -> None:
        """Bring what is shown up to date."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was."""
        ...

    def restore(self) -> None:
        """The same in a handler of signals, where no lock may be taken."""
        ...


class PlainPrinter:
    """Plain lines: for pipes and files."""

    def __init__(self, outlet: Outlet) -> None:
        """Write to an outlet: a reader that stops, or goes away, does not end the run."""
        self._outlet = outlet

    def write(self, line: Line) -> None:
        """Write one line."""
        self._outlet.line(line.text)

    def show(self, now: Snapshot) -> None:
        """Pipes show nothing beside lines."""

    def paint(self) -> None:
        """Lines are written at once."""

    def close(self) -> None:
        """Nothing is open."""

    def restore(self) -> None:
        """Nothing was changed."""


def make_printer(outlet: Outlet, *, live: bool) -> Printer:
    """Return the printer of an outlet; `live`: of a terminal that can be painted on."""
    if not live:
        return PlainPrinter(outlet)
    # Loaded here: a pipe needs none of rich.
    from benchserver.report.live import LivePrinter

    return LivePrinter(outlet)


class TextReporter:
    """Prints a run as it goes; `quiet` leaves only failures and the summary's end."""

    def __init__(self, printer: Printer, wording: Wording, *, quiet: bool) -> None:
        """`wording` is that of the scenario that runs."""
        self._printer = printer
        self._wording = wording
        self._quiet = quiet

    def note(self, text: str) -> None:
        """Print a line about the set-up."""
        if not self._quiet:
            self._printer.write(Line(text))

    def step(self, label: str, step: Step) -> None:
        """Print one step."""
        line = self._wording.describe(label, step)
        if line is not None and not self._quiet:
            self._printer.write(line)

    def concluded(self, label: str, findings: Sequence[Finding]) -> None:
        """Print the verdict on a unit of work."""
        self._write(verdict_on(label, findings, proven=self._wording.proven))

    def tell(self, lines: Iterable[Line]) -> None:
        """Print what somebody has asked for, quiet or not."""
        for line in lines:
            self._printer.write(line)

    def finish(self, result: RunResult) -> None:
        """Print the summary."""
        self._printer.close()
        told = verdict_lines(result) if self._quiet else summary_lines(result, self._wording.units)
        for line in told:
            self._printer.write(line)

    def close(self) -> None:
        """Leave the terminal as it was, if the run ended without a result."""
        self._printer.close()

    def restore(self) -> None:
        """The same in a handler of signals."""
        self._printer.restore()

    def _write(self, lines: Iterable[Line]) -> None:
        for line in lines:
            if not self._quiet or line.style == BAD:
                self._printer.write(line)

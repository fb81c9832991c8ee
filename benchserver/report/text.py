"""The text report: plain lines into a pipe, colour and a progress bar on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TextIO, cast

from benchserver.check.verdict import Finding
from benchserver.history import Step
from benchserver.line import BAD, FAINT, GOOD, PLAIN, Line, Wording
from benchserver.outlet import SHOW_CURSOR, Outlet
from benchserver.report.lines import summary_lines, verdict_lines, verdict_on
from benchserver.result import RunResult

_RICH_STYLES = {PLAIN: "", GOOD: "green", BAD: "bold red", FAINT: "dim"}


class Printer(Protocol):
    """Where lines go."""

    def write(self, line: Line) -> None:
        """Write one line."""
        ...

    def progress(self, done: int) -> None:
        """Tell how many sequences are finished."""
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

    def progress(self, done: int) -> None:
        """Pipes show no progress."""

    def close(self) -> None:
        """Nothing is open."""

    def restore(self) -> None:
        """Nothing was changed."""


class RichPrinter:
    """Coloured lines above a progress bar, on a terminal."""

    def __init__(self, total: int | None, outlet: Outlet) -> None:
        """Show a bar of `total` sequences, if it is known."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

        self._outlet = outlet
        # Of rich's own writing, too, none may block: its lock is held meanwhile.
        self._console = Console(file=cast(TextIO, outlet), highlight=False, soft_wrap=True)
        self._progress: Any = Progress(
            BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=self._console,
            transient=True, redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        self._task = self._progress.add_task("sequences", total=total)
        self._progress.start()

    def write(self, line: Line) -> None:
        """Write one line above the bar."""
        self._console.print(line.text, style=_RICH_STYLES[line.style] or None, markup=False)

    def progress(self, done: int) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=done)

    def close(self) -> None:
        """Remove the bar."""
        self._progress.stop()

    def restore(self) -> None:
        """Show the cursor, which the bar hides."""
        self._outlet.write_now(SHOW_CURSOR)


def make_printer(total: int | None, outlet: Outlet) -> Printer:
    """Return the printer that an outlet calls for; `total` sequences, if it is known."""
    return RichPrinter(total, outlet) if outlet.isatty() else PlainPrinter(outlet)


class TextReporter:
    """Prints a run as it goes; `quiet` leaves only failures and the summary's end."""

    def __init__(self, printer: Printer, wording: Wording, *, quiet: bool) -> None:
        """`wording` is that of the scenario that runs."""
        self._printer = printer
        self._wording = wording
        self._quiet = quiet
        self._done = 0

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
        self._done += 1
        self._printer.progress(self._done)
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

"""The text report: plain flushed lines into a pipe, colour and a progress bar on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TextIO

from benchserver.check.verdict import Finding
from benchserver.history import SequenceRecord, Step
from benchserver.report.lines import (
    BAD,
    FAINT,
    GOOD,
    PLAIN,
    Line,
    sequence_lines,
    step_line,
    summary_lines,
    verdict_lines,
)
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


class PlainPrinter:
    """Plain lines, each flushed: for pipes and files."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, line: Line) -> None:
        """Write one line; a reader that went away does not end the run."""
        try:
            print(line.text, file=self._stream, flush=True)
        except OSError as error:
            self._stream = _discard_output(error)

    def progress(self, done: int) -> None:
        """Pipes show no progress."""

    def close(self) -> None:
        """Nothing is open."""


def _discard_output(error: OSError | None) -> TextIO:
    """Send what is still printed nowhere, so that the process does not stumble over it at its end.

    A reader that went away is nothing to tell; a full disk is.
    """
    if error is not None and not isinstance(error, BrokenPipeError):
        print(f"bench-server: cannot write to standard output: {error.strerror}", file=sys.stderr)
    nowhere = open(os.devnull, "w")  # noqa: SIM115 - lives as long as the process
    if error is not None:
        os.dup2(nowhere.fileno(), 1)
    return nowhere


class RichPrinter:
    """Coloured lines above a progress bar, on a terminal."""

    def __init__(self, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

        self._console = Console(highlight=False, soft_wrap=True)
        self._progress: Any = Progress(
            BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=self._console,
            transient=True,
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


def make_printer(total: int | None) -> Printer:
    """Return the printer that standard output calls for; `total` sequences, if it is known."""
    if sys.stdout is None:  # closed by whoever started us
        return PlainPrinter(_discard_output(None))
    return RichPrinter(total) if sys.stdout.isatty() else PlainPrinter(sys.stdout)


class TextReporter:
    """Prints a run as it goes; `quiet` leaves only failures and the summary's end."""

    def __init__(self, printer: Printer, *, quiet: bool) -> None:
        self._printer = printer
        self._quiet = quiet
        self._done = 0

    def note(self, text: str) -> None:
        """Print a line about the set-up."""
        if not self._quiet:
            self._printer.write(Line(text))

    def step(self, label: str, step: Step) -> None:
        """Print one step."""
        line = step_line(label, step)
        if line is not None and not self._quiet:
            self._printer.write(line)

    def sequence(self, record: SequenceRecord, findings: Sequence[Finding]) -> None:
        """Print the verdict on a sequence."""
        self._done += 1
        self._printer.progress(self._done)
        self._write(sequence_lines(record, findings))

    def finish(self, result: RunResult) -> None:
        """Print the summary."""
        self._printer.close()
        for line in verdict_lines(result) if self._quiet else summary_lines(result):
            self._printer.write(line)

    def close(self) -> None:
        """Leave the terminal as it was, if the run ended without a result."""
        self._printer.close()

    def _write(self, lines: Iterable[Line]) -> None:
        for line in lines:
            if not self._quiet or line.style == BAD:
                self._printer.write(line)

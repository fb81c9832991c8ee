"""The table of the self-test: plain lines into a pipe, a coloured one on a terminal, JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol

from benchserver.errors import one_line
from benchserver.selftest.case import Case
from benchserver.selftest.judge import NOT_ASKED, Row

JSON_FORMAT = 1
_LINE_CHARS = 110
_LABEL_CHARS = 37
_CHECK_CHARS = 12
_HEAD = ("fault", "expected exit", "exit", "caught by", "the line printed")


class TablePrinter(Protocol):
    """Where rows go."""

    def row(self, row: Row) -> None:
        """Take one row."""
        ...

    def close(self) -> None:
        """Show what is not shown yet."""
        ...


def cells(row: Row) -> tuple[str, str, str, str, str]:
    """Return a row's texts."""
    code = "none" if row.exit_code == NOT_ASKED else str(row.exit_code)
    said = row.line if not row.wrong else f"WRONG: {row.wrong}"
    return (
        row.case.label,
        str(row.case.expected_exit),
        code,
        row.caught_by or "-",
        said or "-",
    )


def plain_line(texts: Sequence[str]) -> str:
    """Return one line of the plain table."""
    label, expected, code, caught_by, line = texts
    return (
        f"{label:<{_LABEL_CHARS}} {expected:>13} {code:>4}  {caught_by:<{_CHECK_CHARS}} "
        f"{one_line(line, _LINE_CHARS)}"
    )


def summary(rows: Sequence[Row], wall_s: float) -> str:
    """Return the last line: what the table proves."""
    wrong = [row for row in rows if row.wrong]
    faults = len({row.case.fault for row in rows if row.case.switch})
    if wrong:
        names = ", ".join(row.case.label for row in wrong)
        return f"SELFTEST: FAIL, {len(wrong)} of {len(rows)} runs are wrong: {names} (exit 1)"
    return (
        f"SELFTEST: PASS, {faults} faults in {len(rows)} runs behaved as they must, "
        f"in {wall_s:.0f} s (exit 0)"
    )


def document(rows: Sequence[Row], wall_s: float, mode: str) -> dict[str, Any]:
    """Return the JSON report."""
    return {
        "format": JSON_FORMAT,
        "mode": mode,
        "ok": not any(row.wrong for row in rows),
        "wall_s": wall_s,
        "runs": [
            {
                "fault": row.case.fault,
                "switch": row.case.switch,
                "transport": row.case.transport,
                "expected_exit": row.case.expected_exit,
                "expected_checks": list(row.case.checks),
                "exit": None if row.exit_code == NOT_ASKED else row.exit_code,
                "caught_by": row.caught_by,
                "line": row.line,
                "wrong": row.wrong,
                "wall_s": round(row.wall_s, 3),
            }
            for row in rows
        ],
    }


def list_line(case: Case) -> str:
    """Return the line about a run that is not made."""
    must = f"exit 1, by {', '.join(case.checks)}" if case.checks else "exit 0"
    return f"{case.label:<{_LABEL_CHARS}} {must}"


class PlainTable:
    """Plain lines, each flushed, as the runs end."""

    def __init__(self) -> None:
        print(plain_line(_HEAD), flush=True)

    def row(self, row: Row) -> None:
        """Print one row."""
        print(plain_line(cells(row)), flush=True)

    def close(self) -> None:
        """All is shown."""


class RichTable:
    """A progress bar, and a coloured table at the end."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn
        from rich.table import Table

        self._console = Console(highlight=False)
        self._table: Any = Table(*_HEAD)
        self._progress: Any = Progress(
            BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=self._console,
            transient=True,
        )  # fmt: skip
        self._task = self._progress.add_task("runs", total=total)
        self._progress.start()

    def row(self, row: Row) -> None:
        """Keep one row, and move the bar."""
        from rich.text import Text

        style = "bold red" if row.wrong else ""
        self._table.add_row(*(Text(one_line(cell, _LINE_CHARS), style) for cell in cells(row)))
        self._progress.advance(self._task)

    def close(self) -> None:
        """Show the table."""
        self._progress.stop()
        self._console.print(self._table)


def make_table(total: int) -> TablePrinter:
    """Return the table that standard output calls for."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()  # None: closed at our start
    return RichTable(total) if is_terminal else PlainTable()

"""The table of the self-test: plain lines into a pipe, a coloured one on a terminal, JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TextIO, cast

from benchserver.errors import one_line
from benchserver.outlet import SHOW_CURSOR, Outlet
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

    def restore(self) -> None:
        """Leave the terminal as it was, in a handler of signals, where no lock may be taken."""
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


def summary(rows: Sequence[Row], wall_s: float, trouble: str = "") -> str:
    """Return the last line: what the table proves, unless `trouble` kept the report from it."""
    wrong = [row for row in rows if row.wrong]
    faults = len({row.case.fault for row in rows if row.case.switch})
    if wrong:
        names = ", ".join(row.case.label for row in wrong)
        return f"SELFTEST: FAIL, {len(wrong)} of {len(rows)} runs are wrong: {names} (exit 1)"
    if trouble:
        return f"SELFTEST: FAIL, {trouble} (exit 1)"
    return (
        f"SELFTEST: PASS, {faults} faults in {len(rows)} runs behaved as they must, "
        f"in {wall_s:.0f} s (exit 0)"
    )


def document(rows: Sequence[Row], wall_s: float, mode: str, *, trouble: str = "") -> dict[str, Any]:
    """Return the JSON report; `trouble` is what else keeps the exit code from being 0."""
    return {
        "format": JSON_FORMAT,
        "mode": mode,
        "ok": not trouble and not any(row.wrong for row in rows),
        "trouble": trouble,
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
    """Plain lines, as the runs end."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        outlet.line(plain_line(_HEAD))

    def row(self, row: Row) -> None:
        """Print one row."""
        self._outlet.line(plain_line(cells(row)))

    def close(self) -> None:
        """Do nothing: every row was shown as it came."""

    def restore(self) -> None:
        """Nothing was changed."""


class RichTable:
    """A progress bar, and a coloured table at the end."""

    def __init__(self, total: int, outlet: Outlet) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn
        from rich.table import Table

        self._outlet = outlet
        self._console = Console(file=cast(TextIO, outlet), highlight=False)
        self._table: Any = Table(*_HEAD)
        self._progress: Any = Progress(
            BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=self._console,
            transient=True, redirect_stdout=False, redirect_stderr=False,
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

    def restore(self) -> None:
        """Show the cursor, which the bar hides."""
        self._outlet.write_now(SHOW_CURSOR)


def make_table(total: int, outlet: Outlet) -> TablePrinter:
    """Return the table that an outlet calls for."""
    return RichTable(total, outlet) if outlet.isatty() else PlainTable(outlet)

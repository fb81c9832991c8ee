"""The reports that a run was asked for: opened before it, written before its summary."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchserver.ending import Ending
from benchserver.errors import UsageError
from benchserver.report.destinations import (
    Report,
    deliver,
    fail,
    names_stdout,
    open_destination,
    same_destination,
)
from benchserver.report.files import json_bytes, junit_document
from benchserver.result import RunResult


class Reports:
    """Where each report goes."""

    def __init__(self, reports: list[Report], *, take_stdout: bool) -> None:
        """`take_stdout`: one of them goes there, so that nothing else may."""
        self._reports = reports
        self.take_stdout = take_stdout

    @property
    def wanted(self) -> bool:
        """Tell whether anything is written at all."""
        return bool(self._reports)

    def write(self, result: RunResult) -> list[str]:
        """Write them all; what cannot be written fails the run, and is returned."""
        return deliver(result, self._reports)

    def fail(self, result: RunResult, trouble: str) -> int:
        """Let the run fail for a trouble, tell the files, and return the exit code."""
        fail(result, self._reports, trouble)
        return result.exit_code


@contextmanager
def open_reports(
    json_path: str | None, junit_path: str | None, ending: Ending
) -> Iterator[Reports]:
    """Open what was asked for; UsageError if one of them cannot be written."""
    both = json_path is not None and junit_path is not None
    if both and same_destination(json_path or "", junit_path or ""):
        raise UsageError(f"--json and --junit both name {json_path}")
    asked = (("--json", json_path, json_bytes), ("--junit", junit_path, junit_document))
    with ExitStack() as opened:
        reports: list[Report] = []
        for option, path, content in asked:
            if path is not None:
                destination = open_destination(option, path, ending.seconds_left)
                opened.callback(destination.close)
                reports.append((destination, content))
        paths = [path for _, path, _ in asked if path is not None]
        yield Reports(reports, take_stdout=any(map(names_stdout, paths)))

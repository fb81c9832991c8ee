"""The reports that a run was asked for: opened before it, written before its summary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import combinations
from typing import Any

from benchserver.ending import Ending
from benchserver.errors import UsageError
from benchserver.page.drawing import require_drawing
from benchserver.report.destinations import (
    Report,
    deliver,
    fail,
    names_stdout,
    open_appended,
    open_destination,
    same_destination,
)
from benchserver.report.files import json_bytes, junit_document, result_document
from benchserver.report.hdr import hdr_log
from benchserver.report.summary import summary_markdown
from benchserver.result import RunResult


def _page(result: RunResult) -> bytes:
    # Loaded here: it draws, and no other report needs that.
    from benchserver.page.run import html_report

    return html_report(result_document(result))


CONTENTS: Mapping[str, Callable[[RunResult], bytes]] = {
    "--json": json_bytes,
    "--junit": junit_document,
    "--summary": summary_markdown,
    "--hdr": hdr_log,
    "--html": _page,
}
"""What each option writes; the page last, since it is drawn, which takes seconds."""


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
def open_reports(options: Mapping[str, Any], ending: Ending) -> Iterator[Reports]:
    """Open what was asked for; UsageError if one of them cannot be written."""
    asked = [
        (option, path, content)
        for option, content in CONTENTS.items()
        if (path := options[option.removeprefix("--")]) is not None
    ]
    for (option, path, _), (other, place, _) in combinations(asked, 2):
        if same_destination(path, place):
            raise UsageError(f"{option} and {other} both name {path}")
    with ExitStack() as opened:
        reports: list[Report] = []
        for option, path, content in asked:
            if option == "--html":
                require_drawing("--html")
            open_one = open_appended if option == "--summary" else open_destination
            destination = open_one(option, path, ending.seconds_left)
            opened.callback(destination.close)
            reports.append((destination, content))
        paths = [path for _, path, _ in asked]
        yield Reports(reports, take_stdout=any(map(names_stdout, paths)))

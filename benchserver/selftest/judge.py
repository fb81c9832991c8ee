"""What came of a run, against what must: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchserver.errors import one_line
from benchserver.selftest.case import Case

_SAID_CHARS = 600
NOT_ASKED = -1
"""How often a fault fired, where nobody could ask the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A bench that ended; `trouble` says what kept the run from being one, "" if nothing did.

    `stderr` is the end of what it said there.
    """

    exit_code: int = NOT_ASKED
    stdout: str = ""
    stderr: str = ""
    report: Mapping[str, Any] = field(default_factory=dict)
    fired: int = NOT_ASKED
    wall_s: float = 0.0
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table; `wrong` says why it is not as it must be, "" if it is."""

    case: Case
    exit_code: int
    caught_by: str
    line: str
    wrong: str
    wall_s: float


def judge(case: Case, ended: Ended) -> Row:
    """Compare a run with what must come of it."""
    caught_by = next((check for check in case.checks if check in bad_checks(ended)), "")
    line = _line_of(ended.stdout, f"{caught_by}: " if caught_by else "RESULT: ")
    return Row(
        case=case,
        exit_code=ended.exit_code,
        caught_by=caught_by,
        line=line,
        wrong=_wrong(case, ended, line),
        wall_s=ended.wall_s,
    )


def bad_checks(ended: Ended) -> tuple[str, ...]:
    """Return the checks that are not valid, by the bench's own report."""
    checks = ended.report.get("checks", {})
    return tuple(name for name, check in checks.items() if check["verdict"] != "valid")


def _line_of(stdout: str, start: str) -> str:
    return next((line for line in stdout.splitlines() if line.startswith(start)), "")


def _wrong(case: Case, ended: Ended, line: str) -> str:
    bad = bad_checks(ended)
    if ended.trouble:
        return ended.trouble
    if not ended.report:
        said = one_line(ended.stderr or ended.stdout, _SAID_CHARS) or "nothing"
        return f"exit {ended.exit_code} without a report, so nothing was tested; it said: {said}"
    if case.switch and ended.fired == 0:
        return "the fault never fired"
    if case.checks and ended.exit_code == 0:
        return "NOT CAUGHT: the bench says that everything was proven"
    if ended.exit_code != case.expected_exit:
        shown = f", {', '.join(bad)} not valid" if bad else ""
        return f"exit {ended.exit_code}, expected {case.expected_exit}{shown}"
    missing = [check for check in case.checks if check not in bad]
    if missing:
        return f"not caught by {', '.join(missing)}, but by {', '.join(bad) or 'nothing'}"
    unsaid = [words for words in case.words if words not in line]
    if unsaid:
        return f"the line lacks {unsaid[0]!a}"
    if not case.checks and bad:
        return f"exit 0, but {', '.join(bad)} not valid"
    return ""

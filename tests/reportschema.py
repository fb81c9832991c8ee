"""Every JSON report that a test writes is one by the published schema, whoever wrote it.

After each test all reports in its own directory are looked at, also those of processes that it
started, and those that records of a sweep hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

_MOST_FILES = 64
_LONG = 4
"""Of the cells of a heat map, and of other long lists, the first are looked at: all are alike."""


@cache
def validator() -> Draft202012Validator:
    """Return the validator of the schema, which is one itself."""
    schema = files("benchserver.report").joinpath("report.schema.json").read_text(encoding="utf-8")
    Draft202012Validator.check_schema(json.loads(schema))
    return Draft202012Validator(json.loads(schema))


def check_reports_in(directory: Path) -> None:
    """Raise AssertionError for a report that the schema does not allow."""
    for path in islice(directory.rglob("*.json"), _MOST_FILES):
        for report in _reports_in(path):
            check_report(report, path.name)


def check_report(report: Mapping[str, Any], name: str = "the report") -> None:
    """Raise AssertionError if the schema does not allow a report."""
    problems = [
        f"{name}: {'.'.join(map(str, problem.path))}: {problem.message[:300]}"
        for problem in islice(validator().iter_errors(_shortened(report)), 5)
    ]
    assert not problems, problems


def _reports_in(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return  # a test's own, and wrong on purpose
    # A test's own documents have less than a report of a run.
    nested = document.get("report") if isinstance(document, dict) else None
    for one in (document, nested):
        if isinstance(one, dict) and {"format", "checks", "replay"} <= set(one):
            yield one


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shortened(part) for name, part in value.items()}
    return [_shortened(part) for part in value[:_LONG]] if isinstance(value, list) else value

"""The runs of a side: reports, folders of reports, and the records of sweeps, read to the end.

What is no report of ours is UsageError, in one line, before anything is compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from benchserver.compare.facts import Facts, facts_of
from benchserver.compare.figures import Figures, figures_of
from benchserver.errors import UsageError, one_line, os_reason
from benchserver.jsonfile import read_json_file

MAX_RUNS = 1000
"""Of one side."""

_FORMAT = 1
_PROVEN = "valid"
_MANIFEST, _RECORDS = "manifest.json", "records"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run, as far as it matters here.

    `varied`: what tells its cell of a sweep from the others.  `began_s`: None: it is not known.
    `troubles`: why its figures are no evidence.
    """

    name: str
    run_id: str
    began_s: float | None
    server: str
    varied: Mapping[str, str]
    facts: Facts
    figures: Figures
    troubles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Side:
    """All runs of one side."""

    name: str
    runs: tuple[Run, ...]


def read_sides(a: Sequence[str], b: Sequence[str]) -> tuple[Side, Side]:
    """Return both sides; UsageError for what cannot be read, or is there twice."""
    seen = dict[str, str]()
    return _side("A", a, seen), _side("B", b, seen)


def _side(name: str, paths: Sequence[str], seen: dict[str, str]) -> Side:
    runs: list[Run] = []
    for path in paths:
        for file, is_record in _files(path):
            run = _run(file, is_record)
            for identity in (os.path.realpath(file), run.run_id):
                if identity and (other := seen.get(identity)) is not None:
                    raise UsageError(f"{_shown(file)} is the same run as {other}: name it once")
                seen[identity] = f"{_shown(file)} of side {name}"
            runs.append(run)
            if len(runs) > MAX_RUNS:
                raise UsageError(f"side {name} has more than {MAX_RUNS} runs")
    return Side(name, tuple(runs))


def _files(path: str) -> Iterator[tuple[str, bool]]:
    """Yield the files that a path stands for, and whether they are records of a sweep."""
    if not os.path.isdir(path):
        yield path, False
        return
    is_sweep = os.path.isfile(os.path.join(path, _MANIFEST))
    folder = Path(path, _RECORDS) if is_sweep else Path(path)
    try:
        names = sorted(file.name for file in folder.iterdir())
    except OSError as error:
        raise UsageError(f"{_shown(str(folder))}: {os_reason(error)}") from error
    names = [name for name in names if name.endswith(".json") and not name.startswith(".")]
    if not names:
        raise UsageError(f"{_shown(str(folder))}: there is no report in it (*.json)")
    for name in names:
        yield str(folder / name), is_sweep


def _run(path: str, is_record: bool) -> Run:
    document = read_json_file(_shown(path), path)
    try:
        return _run_of_record(path, document) if is_record else _run_of(path, document, {})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"no {error.args[0]}" if isinstance(error, KeyError) else one_line(error, 200)
        kind = "the record of a sweep" if is_record else "the JSON report of a run"
        raise UsageError(
            f"{_shown(path)}: not {kind} ({reason}); make one with `bench-server --json PATH`"
        ) from error


def _run_of_record(path: str, record: Mapping[str, Any]) -> Run:
    cell = record["cell"]
    varied = {str(key): str(value) for key, value in cell["varied"].items()}
    if record["report"]:
        return _run_of(path, record["report"], varied)
    trouble = str(record["trouble"]) or "it has no report"
    return Run(
        name=_shown(path),
        run_id="",
        began_s=None,
        server="",
        varied=varied,
        facts={},
        figures=Figures(values={}, left_out={}),
        troubles=(one_line(trouble, 200),),
    )


def _run_of(path: str, report: Mapping[str, Any], varied: Mapping[str, str]) -> Run:
    if report["format"] != _FORMAT:
        raise ValueError(f"format {one_line(report['format'], 40)}, expected {_FORMAT}")
    about = report.get("run")
    about = about if isinstance(about, Mapping) else {}
    return Run(
        name=_shown(path),
        run_id=str(about.get("id", "")),
        began_s=_began_s(about.get("started_at")),
        server=one_line(report["server"].get("version") or "of no known version", 60),
        varied=varied,
        facts=facts_of(report),
        figures=figures_of(report),
        troubles=tuple(_troubles(report)),
    )


def _began_s(text: Any) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def _troubles(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield why the figures of a run are no evidence."""
    if report["verdict"] != _PROVEN or report["exit_code"] != 0:
        yield f"its verdict is {one_line(report['verdict'], 40)}, so not all of it is proven"
    if report["interrupted"]:
        yield "it was interrupted"
    load = report.get("load")
    measurement = load.get("measurement") if isinstance(load, Mapping) else None
    if isinstance(measurement, Mapping) and measurement.get("valid") is not True:
        limit = one_line(measurement.get("limit") or "not known", 40)
        yield f"it is not valid as a measurement, the limit was: {limit}"


def _shown(path: str) -> str:
    return one_line(path, 160) or "''"

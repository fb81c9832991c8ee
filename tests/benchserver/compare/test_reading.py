"""Files to sides: reports, folders, sweeps, and everything that is none of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from benchserver.compare import reading
from benchserver.compare.reading import read_sides
from benchserver.errors import UsageError
from tests.benchserver.compare.reports import report, with_values, written


def test_two_files(tmp_path: Path) -> None:
    a = written(tmp_path / "a.json", report(at_s=5.0))
    b = written(tmp_path / "b.json", report(retrieve_ms=11.0, at_s=7.5))
    one, other = read_sides([a], [b])
    assert (one.name, other.name) == ("A", "B")
    (first,), (second,) = one.runs, other.runs
    assert first.name == a
    assert first.server == "0.5.6"
    assert (second.began_s or 0) - (first.began_s or 0) == 2.5
    assert second.figures.values["retrieve.p50"] == 11.0
    assert not first.troubles


def test_a_folder_and_a_sweep(tmp_path: Path) -> None:
    for name in ("2.json", "1.json"):
        written(tmp_path / "runs" / name, report())
    (tmp_path / "runs" / "notes.txt").write_text("nothing of ours")
    written(tmp_path / "sweep/manifest.json", {})
    cell = {"load": {}, "server": [], "varied": {"rate": 10}}
    kept = {"format": 1, "name": "x-1", "cell": cell, "trouble": "", "report": report()}
    written(tmp_path / "sweep/records/x-1.json", kept)
    lost = {**kept, "name": "x-2", "trouble": "its server was not ready", "report": {}}
    written(tmp_path / "sweep/records/x-2.json", lost)
    one, other = read_sides([str(tmp_path / "runs")], [str(tmp_path / "sweep")])
    assert [Path(run.name).name for run in one.runs] == ["1.json", "2.json"]
    whole, broken = other.runs
    assert whole.varied == {"rate": "10"}
    assert broken.troubles == ("its server was not ready",)


@pytest.mark.parametrize(
    ("changes", "trouble"),
    [
        ({"verdict": "unknown", "exit_code": 1}, "its verdict is unknown"),
        ({"exit_code": 1}, "its verdict is valid, so not all"),
        ({"interrupted": True}, "it was interrupted"),
    ],
)
def test_runs_that_are_no_evidence(changes: dict[str, Any], trouble: str, tmp_path: Path) -> None:
    a = written(tmp_path / "a.json", with_values(report(), changes))
    b = written(tmp_path / "b.json", report())
    (run,) = read_sides([a], [b])[0].runs
    assert run.troubles[0].startswith(trouble)


def test_a_load_that_is_no_valid_measurement(tmp_path: Path) -> None:
    made = report()
    made["load"] = {
        "hits": {"measured": {}},
        "bytes": {},
        "missing": {},
        "measurement": {"valid": False, "limit": "harness"},
    }
    sides = read_sides([written(tmp_path / "a", made)], [written(tmp_path / "b", report())])
    assert sides[0].runs[0].troubles == (
        "it is not valid as a measurement, the limit was: harness",
    )


BAD: list[tuple[Any, str]] = [
    (b"", "not JSON"),
    (b'{"format": 1, "verd', "not JSON"),
    (b"\xff\xfe", "not JSON"),
    (b"[" * 100_000, "not JSON"),
    (b"[]", "not the JSON report of a run"),
    (b"{}", "no format"),
    (b'{"format": 2}', "format 2, expected 1"),
    (b'{"format": 1, "server": 5, "verdict": 1, "exit_code": 0}', "not the JSON report of a run"),
]


@pytest.mark.parametrize(("content", "part"), BAD, ids=range(len(BAD)))
def test_files_that_are_none_of_ours(content: bytes, part: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(content)
    good = written(tmp_path / "good.json", report())
    with pytest.raises(UsageError, match=part) as caught:
        read_sides([good], [str(tmp_path / "x.json")])
    assert "x.json" in str(caught.value)


def test_files_that_are_not_there_or_no_files(tmp_path: Path) -> None:
    good = written(tmp_path / "good.json", report())
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, part in (("gone", "No such file"), ("empty", "no report in it"),
                       ("pipe", "not a file")):  # fmt: skip
        with pytest.raises(UsageError, match=part):
            read_sides([good], [str(tmp_path / name)])
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(UsageError, match="so not our report"):
        read_sides([good], [str(tmp_path / "huge")])


def test_one_run_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = report()
    a, copy = written(tmp_path / "a.json", made), written(tmp_path / "copy.json", made)
    for other in (a, copy):
        with pytest.raises(UsageError, match=r"is the same run as .*a\.json of side A"):
            read_sides([a], [other])
    monkeypatch.setattr(reading, "MAX_RUNS", 1)
    with pytest.raises(UsageError, match="side A has more than 1 runs"):
        read_sides([a, written(tmp_path / "b.json", report())], [copy])

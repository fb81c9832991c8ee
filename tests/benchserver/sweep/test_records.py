"""Records on disk: whole or not there; one matrix and one sweep a directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchserver.errors import FatalError, UsageError
from benchserver.sweep.cells import Run
from benchserver.sweep.records import open_records, read_report, write_whole
from tests.benchserver.sweep.reports import cell, record

RUN = Run(cell=cell(concurrency=1), repetition=1)
MANIFEST = {"format": 1, "matrix": "a" * 64}


def test_a_record_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "sweep"
    with open_records(folder, MANIFEST) as records:
        assert records.read(RUN.name) is None
        records.write(record(RUN))
        assert records.read(RUN.name) == record(RUN)
    with open_records(folder, MANIFEST) as records:
        assert records.read(RUN.name) == record(RUN)
        assert records.log(RUN.name, "load").parent.is_dir()
    assert sorted(path.name for path in (folder / "records").iterdir()) == [f"{RUN.name}.json"]


def test_a_write_that_is_cut_off_leaves_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with open_records(tmp_path, MANIFEST) as records:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(FatalError, match=r"cannot write .*: No space left on device"):
            records.write(record(RUN))
        assert records.read(RUN.name) is None
    assert not list((tmp_path / "records").iterdir())


def test_what_was_half_written_when_we_were_killed_is_nothing(tmp_path: Path) -> None:
    with open_records(tmp_path, MANIFEST) as records:
        (tmp_path / "records" / f".{RUN.name}.json.part").write_text('{"format": 1')
        assert records.read(RUN.name) is None
        records.write(record(RUN))
        assert records.read(RUN.name) == record(RUN)


def test_a_record_is_synced_before_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(descriptor: int) -> None:
        seen.append("sync")
        fsync(descriptor)

    def noted_replace(self: Path, target: Path) -> Path:
        seen.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    write_whole(tmp_path / "x.json", {})
    assert seen == ["sync", "rename", "sync"]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", f'{{"format": 2, "name": "{RUN.name}"}}', '{"format": 1, "name": "x"}'],
)
def test_what_is_no_record_is_said(tmp_path: Path, content: str) -> None:
    with open_records(tmp_path, MANIFEST) as records:
        path = tmp_path / "records" / f"{RUN.name}.json"
        path.write_text(content)
        with pytest.raises(FatalError, match=r"not a record .*; remove it to run it again"):
            records.read(RUN.name)


def test_another_matrix(tmp_path: Path) -> None:
    with open_records(tmp_path, MANIFEST):
        pass
    with (
        pytest.raises(UsageError, match=r"holds another sweep: a{12}, and this is b{12};"),
        open_records(tmp_path, {"format": 1, "matrix": "b" * 64}),
    ):
        pass
    (tmp_path / "manifest.json").write_text("{")
    with (
        pytest.raises(UsageError, match=r"manifest\.json is not that of a sweep"),
        open_records(tmp_path, MANIFEST),
    ):
        pass


def test_one_sweep_at_a_time(tmp_path: Path) -> None:
    with (
        open_records(tmp_path, MANIFEST),
        pytest.raises(UsageError, match="another sweep is at work there"),
        open_records(tmp_path, MANIFEST),
    ):
        pass


def test_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UsageError, match=r"--out .*file: .*exists|Not a directory"),
        open_records(tmp_path / "file", MANIFEST),
    ):
        pass


def test_a_load_without_a_report(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="it wrote no report"):
        read_report(tmp_path / "none.json")

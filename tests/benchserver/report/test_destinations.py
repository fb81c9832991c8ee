"""Where reports go: looked at before a run, and never waited for without end."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from benchserver.errors import FatalError, UsageError
from benchserver.outlet import all_of_them
from benchserver.report import destinations
from benchserver.report.destinations import (
    Destination,
    deliver,
    fail,
    names_stdout,
    open_appended,
    open_destination,
    same_destination,
)
from benchserver.report.files import json_bytes
from benchserver.result import RunResult

GoodResult = Callable[..., RunResult]

pytestmark = pytest.mark.usefixtures("leak_free")


def opened(path: Path | str) -> Destination:
    return open_destination("--json", str(path), all_of_them)


def write(path: Path | str, content: bytes) -> None:
    destination = opened(path)
    try:
        destination.write(content)
    finally:
        destination.close()


def test_what_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").touch()
    for good in (tmp_path / "new.json", tmp_path / "old", "relative.xml", "/dev/null"):
        opened(good).close()
    assert os.listdir(tmp_path) == ["old"]


def test_what_cannot_be_written_is_known_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").touch()
    bad = ["", ".", str(tmp_path), str(tmp_path / "none" / "x"), str(tmp_path / "old" / "x")]
    for path in (*bad, "x" * 300, "a\0b"):
        with pytest.raises(UsageError, match=r"--json .*: not a file in an existing directory"):
            opened(path)
    with pytest.raises(UsageError, match=r"--json /proc/x: cannot make a file in /proc: No such"):
        opened("/proc/x")
    with pytest.raises(UsageError, match=r"--json /dev/fd/999: Bad file descriptor"):
        opened("/dev/fd/999")


def test_a_report_replaces_an_older_one(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_bytes(b"an older and longer report")
    write(target, b"new")
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    assert os.listdir(tmp_path) == ["report.json"]


def test_what_cannot_be_written_after_all_leaves_nothing(tmp_path: Path) -> None:
    destination = opened(tmp_path / "report.json")
    (tmp_path / "report.json").mkdir()
    with pytest.raises(FatalError, match=r"cannot write the report .*: Is a directory"):
        destination.write(b"x")
    assert os.listdir(tmp_path) == ["report.json"]


def test_a_link_is_followed_and_the_mode_kept(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_bytes(b"old")
    real.chmod(0o600)
    link.symlink_to(real)
    write(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert real.stat().st_mode & 0o777 == 0o600


def test_a_file_that_only_itself_can_be_written_is_written_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "report.json"
    target.write_bytes(b"an older and longer report")
    number = target.stat().st_ino
    monkeypatch.setattr(destinations, "_why_no_file_in", lambda _: "Permission denied")
    write(target, b"new")
    assert (target.read_bytes(), target.stat().st_ino) == (b"new", number)
    with pytest.raises(UsageError, match=r"cannot make a file in .*: Permission denied"):
        opened(tmp_path / "other.json")


def test_a_pipe_is_written_to_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write(pipe, b"report")
        assert os.read(reader, 100) == b"report"
        assert os.read(reader, 100) == b""  # its end
        assert pipe.is_fifo()
    finally:
        os.close(reader)


def test_a_pipe_without_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(destinations, "READER_WITHIN_S", 0.1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match=r"nobody has opened this pipe for reading within 0\.1 s"):
        opened(tmp_path / "pipe")


def test_a_reader_that_stops_or_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(destinations, "READER_WITHIN_S", 0.1)
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    destination, other = opened(tmp_path / "pipe"), opened(tmp_path / "pipe")
    try:
        with pytest.raises(FatalError, match=r"cannot write the report .*: nobody reads it"):
            destination.write(b"x" * (1 << 20))
    finally:
        os.close(reader)
    with pytest.raises(FatalError, match=r"cannot write the report .*: Broken pipe"):
        other.write(b"x")
    destination.close()
    other.close()


def open_numbers(path: Path) -> set[int]:
    """Return the descriptors of this process that lead to a file."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(f"/proc/self/fd/{name}") == str(path):
                found.add(int(name))
    return found


def test_a_descriptor_that_is_still_written_to_keeps_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next file that is opened got the rest of the report."""
    monkeypatch.setattr(destinations, "READER_WITHIN_S", 0.1)
    monkeypatch.setattr(destinations, "_LAST_WRITE_S", 0.1)
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    destination = opened(tmp_path / "pipe")
    (number,) = open_numbers(tmp_path / "pipe") - {reader}
    try:
        with pytest.raises(FatalError, match="nobody reads it"):
            destination.write(b"x" * (1 << 20))
        destination.close()
        assert open_numbers(tmp_path / "pipe") == {reader, number}
    finally:
        os.close(reader)
        monkeypatch.setattr(destinations, "_LAST_WRITE_S", 30.0)
        destination.close()
    assert open_numbers(tmp_path / "pipe") == set()


def test_descriptors_by_their_names() -> None:
    """As `>(command)` and `3>file` give them."""
    reader, writer = os.pipe()
    try:
        write(f"/dev/fd/{writer}", b"one ")
        write(f"/proc/self/fd/{writer}", b"two")
        assert os.read(reader, 100) == b"one two"
    finally:
        os.close(reader)
        os.close(writer)


def test_the_names_of_stdout() -> None:
    for name in ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        assert names_stdout(name)
    for name in ("/dev/stderr", "/dev/null", "none", "", "a\0b", "./-"):
        assert not names_stdout(name)


def test_two_names_of_one_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert same_destination(str(tmp_path / "link"), str(tmp_path / "real"))
    assert not same_destination(str(tmp_path / "a"), str(tmp_path / "b"))
    assert same_destination("-", "/dev/stdout")


class Broken:
    """A destination that takes nothing."""

    rewritable = False

    def write(self, content: bytes) -> None:
        raise FatalError("cannot write the report p: Broken pipe")

    def close(self) -> None:
        """Nothing is open."""


def test_a_report_that_cannot_be_written_fails_the_run_in_the_others_too(
    good_result: GoodResult, tmp_path: Path
) -> None:
    result, path = good_result(), tmp_path / "r.json"
    wrong = deliver(result, [(Broken(), json_bytes), (opened(path), json_bytes)])
    assert wrong == ["cannot write the report p: Broken pipe"]
    document = json.loads(path.read_bytes())
    assert (document["verdict"], document["exit_code"], result.exit_code) == ("invalid", 1, 1)
    assert document["checks"]["run"]["texts"] == wrong


def test_what_happens_after_the_reports_is_told_in_them(
    good_result: GoodResult, tmp_path: Path
) -> None:
    result, path = good_result(), tmp_path / "r.json"
    reports = [(opened(path), json_bytes)]
    assert deliver(result, reports) == []
    assert json.loads(path.read_bytes())["exit_code"] == 0
    fail(result, reports, "cannot write to standard output: No space left on device")
    assert json.loads(path.read_bytes())["exit_code"] == result.exit_code == 1


def test_a_summary_is_put_behind_what_is_there_and_replaces_itself_alone(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_bytes(b"of an earlier step\n")
    destination = open_appended("--summary", str(path), all_of_them)
    destination.write(b"PASS\n")
    assert path.read_bytes() == b"of an earlier step\nPASS\n"
    destination.write(b"FAIL, after all\n")
    assert path.read_bytes() == b"of an earlier step\nFAIL, after all\n"
    with path.open("ab") as other:
        other.write(b"of another\n")
    destination.write(b"once more\n")
    assert path.read_bytes().endswith(b"FAIL, after all\nof another\nonce more\n")
    destination.close()


def test_a_summary_that_cannot_be_written_is_wrong_usage_and_makes_no_file(tmp_path: Path) -> None:
    open_appended("--summary", str(tmp_path / "new.md"), all_of_them).close()
    assert not list(tmp_path.iterdir())
    for bad in (tmp_path / "no" / "a.md", tmp_path, "a\0b", ""):
        with pytest.raises(UsageError, match="--summary"):
            open_appended("--summary", str(bad), all_of_them)


def test_a_summary_that_can_be_written_no_more_says_so(tmp_path: Path) -> None:
    destination = open_appended("--summary", str(tmp_path / "a.md"), all_of_them)
    (tmp_path / "a.md").mkdir()
    with pytest.raises(FatalError, match="cannot write the report"):
        destination.write(b"PASS")

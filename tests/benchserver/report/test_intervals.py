"""The interval record of a run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from benchserver.errors import UsageError
from benchserver.outlet import all_of_them
from benchserver.report.intervals import interval_document, open_interval_log
from tests.benchserver.report.snapshots import resource, snapshot

pytestmark = pytest.mark.usefixtures("leak_free")


def lines_in(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_has_all_that_is_known_of_a_run() -> None:
    document = interval_document(
        snapshot(resources=(resource("server memory", slope_per_hour=5.0, verdict="grows"),))
    )
    assert document["time"] == "2026-12-01T12:00:00.000+00:00"
    assert (document["at_s"], document["verdict"], document["proven"]) == (192.5, "valid", 60)
    assert document["operations"]["STORE"]["p99_ms"] == 2.5
    assert document["hits"] == {"asked_chunks": 200, "hit_chunks": 150}
    assert document["resources"] == {
        "server memory": {"value": float(1 << 30), "verdict": "grows", "slope_per_hour": 5.0}
    }
    assert interval_document(snapshot(hits=None))["hits"] is None


def test_lines_are_added_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    for first in (1, 3):
        with open_interval_log(str(path)) as log:
            for proven in (first, first + 1):
                log.write(snapshot(proven=proven))
            assert (log.settle(all_of_them), log.broken) == ("", "")
    assert [line["proven"] for line in lines_in(path)] == [1, 2, 3, 4]


def test_what_is_left_is_written_even_if_nobody_settles_it(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with open_interval_log(str(path)) as log:
        log.write(snapshot())
    assert len(lines_in(path)) == 1


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("absent/run.jsonl", "--interval-log absent/run.jsonl: No such file or directory"),
        (".", "--interval-log .: Is a directory"),
        ("", "--interval-log '': No such file or directory"),
        ("a\0b", "no such name"),
    ],
)
def test_a_file_that_cannot_be_written_is_wrong_usage(
    path: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as raised, open_interval_log(path):
        pass
    assert said in str(raised.value)


def test_a_pipe_that_nobody_reads_is_wrong_usage(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (
        pytest.raises(UsageError, match="No such device"),
        open_interval_log(str(tmp_path / "pipe")),
    ):
        pass


def test_a_full_disk_is_said_at_the_end_and_holds_up_nothing() -> None:
    with open_interval_log("/dev/full") as log:
        log.write(snapshot())
        log.write(snapshot())
        said = "cannot write the interval log /dev/full: No space left on device"
        assert log.settle(all_of_them) == said
        assert log.broken == said

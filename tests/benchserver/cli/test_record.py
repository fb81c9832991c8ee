"""The record of a run as it comes about: what it is asked, how long it takes, what goes wrong."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchserver.cli.record import Recorder
from benchserver.environment import machine, software
from benchserver.result import RunResult
from benchserver.section import RECORD_KEYS, Section
from benchserver.stage import process
from tests.benchserver.cli.commandline import invoke

GoodResult = Callable[..., RunResult]


def documents(result: RunResult) -> dict[str, Any]:
    return {section.key: section.document for section in result.sections}


def unhurried(seconds: float) -> float:
    return 60.0


@pytest.mark.asyncio
async def test_a_result_is_completed_by_its_record(good_result: GoodResult) -> None:
    recorder = Recorder(["bench-server", "ping"])
    load = Section(key="load", title="", lines=(), document={"n": 1})
    with recorder.watching("tcp://10.0.0.1:5555"):
        result = good_result(sections=(load,))
    completed = recorder.completed(result, unhurried)
    assert completed.ledger is result.ledger
    found = documents(completed)
    assert list(found) == ["run", "environment", "load"]
    assert found["run"]["command_line"] == "bench-server ping"
    assert re.fullmatch(
        r"[0-9]{4}(-[0-9]{2}){2}T([0-9]{2}:){2}[0-9]{2}\.[0-9]{3}\+00:00",
        found["run"]["started_at"],
    )
    assert found["run"]["software"]["packages"]["click"]
    assert found["run"]["memory"]["server"].startswith("not known: the server is not on this host")
    assert found["environment"]["memory_bytes"] > 0


def test_reading_is_waited_for_so_long_and_no_longer(
    good_result: GoodResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()

    def slow(*_: Any) -> dict[str, Any]:
        go.wait(60)
        return {}

    monkeypatch.setattr(machine, "machine_document", slow)
    found = documents(Recorder([]).completed(good_result(), lambda _: 0.9))
    go.set()
    assert found["environment"] == {"unread": "not known: reading it took more than 0.1 s"}
    assert found["run"]["software"] == found["environment"]


def test_no_time_is_left_after_a_signal(
    good_result: GoodResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    monkeypatch.setattr(machine, "machine_document", lambda *_: go.wait(60))
    found = documents(Recorder([]).completed(good_result(), lambda _: 0.0))
    go.set()
    assert found["environment"] == {"unread": "not known: reading it took more than 0.0 s"}


def test_what_fails_to_be_read_is_said(
    good_result: GoodResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> dict[str, Any]:
        raise UnicodeError("no\nletters")

    monkeypatch.setattr(software, "software_document", broken)
    found = documents(Recorder([]).completed(good_result(), unhurried))
    assert found["run"]["software"] == {"unread": "not known: UnicodeError: no letters"}
    assert found["environment"]["kernel"]


def test_words_that_no_locale_has_are_as_they_were_typed(good_result: GoodResult) -> None:
    word = "модель".encode().decode("ascii", "surrogateescape")
    found = documents(Recorder([word]).completed(good_result(), unhurried))
    assert found["run"]["command_line"] == "'модель'"


@pytest.mark.parametrize("asked", [True, False])
def test_a_run_without_a_report_has_no_record(
    monkeypatch: pytest.MonkeyPatch, good_result: GoodResult, tmp_path: Path, asked: bool
) -> None:
    made: list[Recorder] = []
    completed = Recorder.completed

    def complete(recorder: Recorder, *args: Any) -> RunResult:
        made.append(recorder)
        return completed(recorder, *args)

    monkeypatch.setattr(Recorder, "completed", complete)
    monkeypatch.setattr(
        process, "run_to_end", lambda config, scenario, reporter, ending, watchers: good_result()
    )
    words = ("--json", "r.json") if asked else ()
    assert invoke("--mode", "cpu", *words).exit_code == 0
    assert len(made) == asked
    if asked:
        assert json.loads((tmp_path / "r.json").read_text()).keys() > RECORD_KEYS

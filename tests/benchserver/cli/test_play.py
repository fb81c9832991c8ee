"""A run from the command line: what it is given, its reports, its exit code."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchserver import embedded
from benchserver.check.content import CONTENT
from benchserver.check.verdict import failed
from benchserver.cli import play
from benchserver.config.run import RunConfig
from benchserver.ending import Ending
from benchserver.errors import FatalError
from benchserver.kv.gpu import requirements
from benchserver.report.text import TextReporter
from benchserver.result import RunResult
from benchserver.stage import process
from tests.benchserver.cli.commandline import assert_one_line, invoke

GoodResult = Callable[..., RunResult]


@pytest.mark.usefixtures("device")
def test_the_embedded_server_is_told_where_the_memory_is(
    monkeypatch: pytest.MonkeyPatch, good_result: GoodResult
) -> None:
    asked: list[Any] = []

    @contextlib.contextmanager
    def serve(*args: Any, **options: Any) -> Iterator[embedded.EmbeddedServer]:
        asked.append(options)
        yield embedded.EmbeddedServer(rpc_url="tcp://x:1", http_url="http://x:2")

    monkeypatch.setattr(embedded, "embedded_server", serve)
    monkeypatch.setattr(
        process, "run_to_end", lambda config, scenario, reporter, ending, watchers: good_result()
    )
    assert invoke("--embedded").exit_code == 0
    assert invoke("--embedded", "--mode", "gpu").exit_code == 0
    assert [options["gpu"] for options in asked] == [False, True]


def test_reports_are_written_before_the_embedded_server_is_stopped(
    monkeypatch: pytest.MonkeyPatch, good_result: GoodResult
) -> None:
    endings: list[Ending] = []

    @contextlib.contextmanager
    def serve(*args: Any, ending: Ending, **_: Any) -> Iterator[embedded.EmbeddedServer]:
        endings.append(ending)
        yield embedded.EmbeddedServer(rpc_url="tcp://x:1", http_url="http://x:2")
        assert sorted(os.listdir()) == ["r.json", "r.xml"]

    def run(
        config: RunConfig, scenario: Any, reporter: Any, ending: Ending, watchers: Any
    ) -> RunResult:
        endings.append(ending)
        return good_result()

    monkeypatch.setattr(embedded, "embedded_server", serve)
    monkeypatch.setattr(process, "run_to_end", run)
    assert invoke("--embedded", "--json", "r.json", "--junit", "r.xml").exit_code == 0
    assert endings[0] is endings[1]


def test_an_embedded_server_that_does_not_start_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    @contextlib.contextmanager
    def serve(*_: Any, **__: Any) -> Iterator[embedded.EmbeddedServer]:
        raise FatalError("the embedded server did not start: it said nothing")
        yield

    monkeypatch.setattr(embedded, "embedded_server", serve)
    assert_one_line(invoke("--embedded", "--json", "r.json"), 1, "it said nothing")
    document = json.loads((tmp_path / "r.json").read_text())
    texts = document["checks"]["run"]["texts"]
    assert texts == ["the embedded server did not start: it said nothing"]
    assert document["run"]["memory"]["server"] == "not known: no run was made"
    assert document["environment"]["kernel"]


def test_a_ping_that_cannot_begin_owes_nothing_that_only_workers_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def serve(*_: Any, **__: Any) -> Any:
        raise FatalError("the embedded server did not start: it said nothing")

    monkeypatch.setattr(embedded, "embedded_server", serve)
    assert invoke("ping", "--embedded", "--json", "r.json").exit_code == 1
    checks = json.loads((tmp_path / "r.json").read_text())["checks"]
    assert list(checks) == ["answers", "chunk_size", "pong", "replies", "health", "growth", "run"]


@pytest.mark.parametrize(
    "args", [(), ("--mode", "gpu"), ("--embedded", "--mode", "gpu"), ("selftest", "--mode", "gpu")]
)
def test_gpu_without_a_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, args: tuple[str, ...]
) -> None:
    monkeypatch.setattr(requirements, "device_count", lambda: 0)
    text = "--mode gpu: this machine has no usable CUDA device; use --mode cpu"
    assert_one_line(invoke(*args), 1, text)
    if "selftest" in args:
        return
    assert_one_line(invoke(*args, "--json", "r.json", "--junit", "r.xml"), 1, text)
    document = json.loads((tmp_path / "r.json").read_text())
    assert (document["exit_code"], document["checks"]["run"]["texts"]) == (1, [text])
    assert text in (tmp_path / "r.xml").read_text()


def test_wrong_usage_is_told_before_a_missing_device() -> None:
    assert_one_line(invoke("--mode", "gpu", "--end", "0"), 2, "--end 0 must be greater")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FatalError("no room\nin /dev/shm"), "bench-server: error: no room in /dev/shm\n"),
        (
            KeyboardInterrupt(),
            "bench-server: error: interrupted before the run began: nothing is proven\n",
        ),
    ],
)
def test_fatal_errors_and_interrupts_exit_with_1(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, text: str
) -> None:
    closed: list[TextReporter] = []

    def run(config: RunConfig, _: Any) -> int:
        raise error

    monkeypatch.setattr(play, "_run", run)
    monkeypatch.setattr(TextReporter, "close", lambda reporter: closed.append(reporter))
    result = invoke("--mode", "cpu")
    # click ends the terminal's line, on which ^C stands.
    assert (result.exit_code, result.stderr.lstrip("\n")) == (1, text)
    assert len(closed) == 1


@pytest.mark.parametrize("good", [True, False])
def test_reports_and_exit_code_of_a_run(
    monkeypatch: pytest.MonkeyPatch, good_result: GoodResult, tmp_path: Path, good: bool
) -> None:
    made = good_result()
    if not good:
        made.ledger.add([failed(CONTENT, "bad")])
    monkeypatch.setattr(
        process, "run_to_end", lambda config, scenario, reporter, ending, watchers: made
    )
    result = invoke("--mode", "cpu", "--json", "r.json", "--junit", "r.xml")
    assert result.exit_code == (0 if good else 1)
    assert json.loads((tmp_path / "r.json").read_text())["exit_code"] == (0 if good else 1)
    suite = ElementTree.parse(tmp_path / "r.xml").getroot()
    assert suite.attrib["failures"] == ("0" if good else "1")
    assert sorted(os.listdir(tmp_path)) == ["r.json", "r.xml"]
    invoke("--mode", "cpu", BENCH_SERVER_JSON="e.json", BENCH_SERVER_JUNIT="e.xml")
    assert sorted(os.listdir(tmp_path)) == ["e.json", "e.xml", "r.json", "r.xml"]


def test_what_is_said_last_equals_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, good_result: GoodResult, tmp_path: Path
) -> None:
    """A report that cannot be written fails the run, in text and in the other report too."""

    def run(
        config: RunConfig, scenario: Any, reporter: TextReporter, ending: Ending, watchers: Any
    ) -> RunResult:
        (tmp_path / "r.json").mkdir()
        return good_result()

    monkeypatch.setattr(process, "run_to_end", run)
    result = invoke("--mode", "cpu", "--json", "r.json", "--junit", "r.xml")
    assert (result.exit_code, result.stderr) == (1, "")
    assert "\nrun: cannot write the report r.json: Is a directory\n" in result.stdout
    assert "\nRESULT: FAIL (exit 1)" in result.stdout
    assert ElementTree.parse(tmp_path / "r.xml").getroot().attrib["failures"] == "1"


def test_other_scripts_where_the_locale_has_ascii_alone() -> None:
    """A name arrives as it was typed, and goes out as the terminal can show it."""
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "benchserver", "--mode", "cpu", "--rpc-url", "127.0.0.1:1"),
            *("--no-http", "--model-name", "модель ü", "--json", "-", "--end", "1"),
        ],
        capture_output=True,
        timeout=60,
        env={
            **{name: value for name, value in os.environ.items() if name in ("PATH", "HOME")},
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "LC_ALL": "C",
            "PYTHONUTF8": "0",
            "PYTHONCOERCECLOCALE": "0",
            "PYTHONIOENCODING": "ascii",
        },
        check=False,
    )
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["config"]["model_name"] == "модель ü"
    assert rb"--model-name '\u043c\u043e\u0434\u0435\u043b\u044c \xfc'" in ended.stderr
    assert b"Traceback" not in ended.stderr

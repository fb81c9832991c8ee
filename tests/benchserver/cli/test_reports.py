"""Reports that a run was asked for: opened before it, written after it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from benchserver.result import RunResult
from benchserver.stage import process
from tests.benchserver.cli.commandline import Runs, assert_one_line, invoke

GoodResult = Callable[..., RunResult]


@pytest.mark.parametrize("path", ["none/x.json", "/proc/x.json"])
def test_a_report_that_cannot_be_written_is_known_before_the_run(runs: Runs, path: str) -> None:
    for option in ("--json", "--junit"):
        assert_one_line(invoke("--mode", "cpu", option, path), 2, f"{option} {path}: ")
    assert not runs
    assert_one_line(invoke("selftest", "--json", path), 2, f"--json {path}: ")


def test_a_report_on_stdout_leaves_the_lines_to_stderr(
    monkeypatch: pytest.MonkeyPatch, good_result: GoodResult, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        process, "run_to_end", lambda config, scenario, reporter, ending, watchers: good_result()
    )
    result = invoke("--mode", "cpu", "--json", "-")
    assert json.loads(result.stdout)["exit_code"] == result.exit_code == 0
    assert result.stderr.splitlines()[-1].startswith("RESULT: PASS")
    assert os.listdir(tmp_path) == []
    assert_one_line(invoke("--mode", "cpu", "--json", "-", "--junit", "-"), 2, "both name -")

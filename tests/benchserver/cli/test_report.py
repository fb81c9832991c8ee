"""`bench-server report`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchserver.cli.commandline import invoke


def test_it_writes_a_page_beside_the_report_and_says_where(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"format": 1, "verdict": "invalid"}))
    result = invoke("report", "run.json")
    assert (result.exit_code, result.stdout) == (0, "Wrote run.html\n")
    assert "FAIL" in (tmp_path / "run.html").read_text()
    result = invoke("report", "run.json", "--html", "-")
    assert (result.exit_code, result.stderr) == (0, "Wrote -\n")
    assert result.stdout.startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("args", "content", "said"),
    [
        ((), "", "a report needs the run: bench-server report RUN.json"),
        (("none.json",), "", "none.json: No such file"),
        (("a.json",), "[]", "a.json: not the report of a run; make one with"),
        (("a.json",), "{}", "a.json: not the report of a run"),
        (("a.json",), '{"format": 2, "verdict": ""}', "a report of format 2, this"),
        (("a.json", "--html", "a.json"), '{"format": 1, "verdict": ""}', "are both a.json"),
        (("a.json", "--html", "no/a.html"), '{"format": 1, "verdict": ""}', "--html no/a.html"),
        (("a.json", "b.json"), '{"format": 1, "verdict": ""}', "b.json"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_2(
    args: tuple[str, ...], content: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text(content)
    result = invoke("report", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]

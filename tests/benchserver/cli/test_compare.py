"""`bench-server compare`: the table, the files, exit codes, and what is asked wrongly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchserver.cli.commandline import assert_one_line, invoke
from tests.benchserver.compare.reports import report, with_values, written

TAKEN_MS = (10.0, 10.1, 10.05, 10.02, 10.03, 10.08, 10.01, 10.04)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, str]:
    """Return two folders of eight runs in turn; those of B are 20 % slower."""
    for place, value in enumerate(TAKEN_MS):
        at_s = 10.0 * place
        written(tmp_path / f"a/{place}.json", report(retrieve_ms=value, at_s=at_s))
        made = report(retrieve_ms=1.2 * value, at_s=at_s + 5)
        written(tmp_path / f"b/{place}.json", made)
    return str(tmp_path / "a"), str(tmp_path / "b")


def test_two_folders(folders: tuple[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = invoke("compare", *folders, "--json", str(out))
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    assert "8 pairs of runs" in result.stdout
    assert result.stdout.rstrip().endswith("(exit 0)")
    found = {row["figure"]: row for row in json.loads(out.read_bytes())["figures"]}
    assert found["retrieve.p50"]["finding"] == "worse"
    assert found["store.gb_per_s"]["finding"] == "no difference shown"


def test_files_and_options_beside_the_separator(folders: tuple[str, str]) -> None:
    a, b = (sorted(map(str, Path(folder).iterdir())) for folder in folders)
    result = invoke("compare", *a, "--", *b, "--fail-if", "retrieve.p99 > +10%", "--json", "-")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["gates"][0]["outcome"] == "broken"
    assert result.stderr.rstrip().endswith("gates broken: 1 of 1 (exit 1)")


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        ("retrieve.p99 > +10%", 1),
        ("retrieve.p99 > +20%", 3),
        ("retrieve.p99 > +30%", 0),
        ("lookup.p99 > +30%", 3),
    ],
)
def test_exit_codes(gate: str, code: int, folders: tuple[str, str]) -> None:
    assert invoke("compare", *folders, "--fail-if", gate).exit_code == code


def test_a_page(folders: tuple[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    result = invoke("compare", *folders, "--html", str(out), "--fail-if", "retrieve.p50 > +10%")
    assert result.exit_code == 1
    page = out.read_text()
    assert "GATE BROKEN</strong>" in page
    assert '<figure data-chart="changes-0">' in page


def test_no_output_takes_the_place_of_a_report(folders: tuple[str, str]) -> None:
    ours = f"{folders[0]}/0.json"
    result = invoke("compare", ours, folders[1], "--json", ours)
    assert_one_line(result, 2, "is a report that is compared")
    both = ("--json", f"{ours}.x", "--html", f"{ours}.x")
    assert_one_line(invoke("compare", ours, folders[1], *both), 2, "both name")


def test_one_run_a_side(folders: tuple[str, str]) -> None:
    paths = (f"{folders[0]}/0.json", f"{folders[1]}/0.json")
    result = invoke("compare", *paths)
    assert result.exit_code == 0
    assert "cannot tell" in result.stdout
    assert invoke("compare", *paths, "--fail-if", "retrieve.p50 > +5%").exit_code == 3


def test_a_refusal_lists_what_differs(folders: tuple[str, str], tmp_path: Path) -> None:
    other = written(tmp_path / "x.json", with_values(report(), {"config.num_tokens": 9}))
    result = invoke("compare", folders[0], other)
    assert result.exit_code == 2
    assert result.stdout == ""
    listed, error = result.stderr.splitlines()
    assert listed == "config.num_tokens: A has 512, B has 9"
    assert error.startswith("bench-server: error: the sides differ in what must be equal (1 ")
    assert invoke("compare", folders[0], other, "--allow", "config.num_tokens").exit_code == 0


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ((), "needs two sides"),
        (("a",), "needs two sides"),
        (("a", "b", "a"), "needs two sides"),
        (("a", "a"), "is the same run as"),
        (("a", "nowhere"), "nowhere: No such file"),
        (("a", "b", "--fail-if", "x > 1%"), "no figure is called x"),
        (("a", "b", "--json", "/nowhere/x"), "--json /nowhere/x: not a file in an existing"),
        (("a", "b", "--not-valid", "maybe"), "'maybe' is not one of"),
        (("a", "b", "--seed", "-1"), "out of range"),
    ],
)
def test_wrong_usage(
    words: tuple[str, ...],
    part: str,
    folders: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(Path(folders[0]).parent)
    assert_one_line(invoke("compare", *words), 2, part)

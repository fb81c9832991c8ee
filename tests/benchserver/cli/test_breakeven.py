"""`bench-server breakeven`: the table, the files, and everything that is asked wrongly."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchserver.cli.main import cli
from tests.benchserver.breakeven.reports import report, written
from tests.benchserver.cli.commandline import assert_one_line, invoke

SAID = ("--payload", "1GiB", "--saved", "120ms", "--fixed", "3ms", "--device-bandwidth", "24GiB/s")


def test_the_table() -> None:
    result = invoke("breakeven", *SAID, "--network-bandwidth", "4GiB/s")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "4GiB/s                  294.7 ms    -174.7 ms loss     253.0 ms" in result.stdout
    assert result.stdout.endswith(
        "With both legs at once, a hit pays above 8.547 GiB/s of network.\n"
    )


def test_options_come_from_variables_too() -> None:
    result = invoke("breakeven", *SAID[2:], BENCH_SERVER_BREAKEVEN_PAYLOAD="64MiB")
    assert result.exit_code == 0
    assert result.stdout.startswith("A hit moves 64 MiB,")


def test_all_files(tmp_path: Path) -> None:
    run = written(tmp_path, report())
    out, svg = tmp_path / "out.json", tmp_path / "plot.svg"
    said = ("--run", run, "--prefill-tokens-per-s", "5120")
    result = invoke("breakeven", *said, "--json", str(out), "--plot", str(svg))
    assert result.exit_code == 0, result.stderr
    document = json.loads(out.read_bytes())
    assert document["saved_ms"] == 100.0
    assert document["run"]["path"] == run
    assert svg.read_bytes().startswith(b"<?xml")
    result = invoke("breakeven", *said, "--plot", str(tmp_path / "plot.png"))
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ((), ("--payload is missing",)),
        ((*SAID, "--payload", "-1GiB"), ("--payload '-1GiB': expected a number",)),
        ((*SAID, "--payload", "nan"), ("--payload 'nan'",)),
        ((*SAID, "--saved", "120"), ("--saved '120': expected a number with its unit",)),
        ((*SAID, "--device-bandwidth", "0GiB/s"), ("out of range",)),
        ((*SAID, "--network-bandwidth", "4Gib/s"), ("no such unit",)),
        ((*SAID, "--network-bandwidth", "nanB/s"), ("expected a number",)),
        ((*SAID, "--tokens", "0"), ("0 is out of range",)),
        ((*SAID, "--prefill-tokens-per-s", "nan"), ("'nan' is not a decimal number",)),
        ((*SAID, "--run", "/nowhere/run.json"), ("--run /nowhere/run.json: No such file",)),
        ((*SAID, "--json", "/nowhere/x"), ("--json /nowhere/x: not a file in an existing",)),
        (
            (*SAID, "--plot", "/nowhere/x.png"),
            ("--plot /nowhere/x.png: not a file in an existing",),
        ),
        ((*SAID, "--plot", "x.pdf"), ("--plot x.pdf: expected a name that ends in .png or .svg",)),
        ((*SAID, "--json", "x.png", "--plot", "x.png"), ("--json and --plot both name x.png",)),
        ((*SAID, "more"), ("unexpected extra argument",)),
    ],
)
def test_wrong_usage(
    options: tuple[str, ...],
    parts: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_one_line(invoke("breakeven", *options), 2, *parts)
    assert not list(tmp_path.iterdir())


def test_a_report_of_another_program_is_one_line(tmp_path: Path) -> None:
    path = written(tmp_path, {"results": []})
    assert_one_line(invoke("breakeven", *SAID, "--run", path), 2, f"--run {path}: not the JSON")


def test_without_matplotlib_the_table_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    plot = tmp_path / "plot.png"
    assert_one_line(
        invoke("breakeven", *SAID, "--plot", str(plot)), 2, "needs matplotlib", "[report]"
    )
    assert not plot.exists()
    assert invoke("breakeven", *SAID).exit_code == 0


def test_a_report_that_cannot_be_written_is_no_success() -> None:
    result = invoke("breakeven", *SAID, "--json", "/dev/full")
    assert result.exit_code == 1
    assert "bench-server: error: cannot write the report /dev/full" in result.stderr
    assert "294.7 ms" in result.stdout


def test_it_is_a_command() -> None:
    assert "breakeven" in cli.commands

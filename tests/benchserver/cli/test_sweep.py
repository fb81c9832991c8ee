"""`bench-server sweep`: loads of real servers, killed and resumed; what is asked wrongly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchserver.cli.main import cli
from benchserver.embedded import own_environment
from tests.benchserver.cli.commandline import assert_one_line, invoke
from tests.benchserver.sweep.processes import all_gone
from tests.mitm.forked import ROOT

WITHIN_S = 300.0
END_S = 8.0
"""Users are promised five seconds; this machine may be busy."""

LOAD = """
[load]
requests = 3
mode = "cpu"
num-tokens = 512
kvcache-shape-spec = "(2,1024,16,1,16):float16:2"
"""
SERVER = """
[server]
command = "serve --chunk-size {chunk_size} --l1-size-gb {l1_gb} {tier}"
l1_gb = 0.1
"""
VARY = """
[vary]
chunk_size = [64, 128, 256]
tier = [""]
"""


def matrix(folder: Path, text: str = LOAD + SERVER + VARY) -> str:
    path = folder / "matrix.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchserver", "sweep", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**own_environment(), "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )


def records_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.sweep/records/*.json"))


def descendants_of(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have."""
    parents: dict[int, int] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            parents[int(path.name)] = int(fields[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def wait_for_records(process: subprocess.Popen[str], folder: Path, count: int) -> list[int]:
    """Wait for so many records, and then for a run that is under way; return its processes."""
    deadline_s = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline_s:
        assert process.poll() is None, process.communicate()
        found = descendants_of(process.pid)
        if len(records_in(folder)) >= count and len(found) >= 2:
            return found
        time.sleep(0.02)
    raise AssertionError("there were no records")


def test_killed_and_resumed_it_gives_one_table(tmp_path: Path) -> None:
    path = matrix(tmp_path)
    process = start(tmp_path, path)
    children = wait_for_records(process, tmp_path, 1)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=WITHIN_S)
    assert all_gone(children)
    before = {record: record.read_bytes() for record in records_in(tmp_path)}
    assert 1 <= len(before) < 3

    stdout, stderr = start(tmp_path, path).communicate(timeout=WITHIN_S)
    assert stderr == ""
    lines = stdout.splitlines()
    assert lines[0].endswith(f": 3 runs, {len(before)} of them there already; seed 0")
    assert sum(line.startswith("run ") for line in lines) == 3 - len(before)
    assert lines[-1].startswith(("SWEEP: PASS, 3 cells", "SWEEP: FAIL, 3 cells, 3 of 3 runs: "))
    assert all(record.read_bytes() == content for record, content in before.items())
    folder = tmp_path / "matrix.sweep"
    table = json.loads((folder / "table.json").read_bytes())
    assert table["complete"]
    assert len(table["cells"]) == 3
    for cell in table["cells"]:
        assert cell["proven"], cell["wrong"]
        assert cell["figures"]["share_verified"]["mean"] == 1.0
        assert cell["figures"]["requests_per_s"]["half_width"] is None
    assert len((folder / "table.csv").read_text().splitlines()) == 4
    assert "One repetition: no confidence interval" in (folder / "table.txt").read_text()
    assert {record.stem for record in records_in(tmp_path)} == {
        run["record"] for cell in table["cells"] for run in cell["runs"]
    }
    servers = [json.loads(record.read_bytes())["server"] for record in records_in(tmp_path)]
    sizes = {words[words.index("--chunk-size") + 1] for words in servers}
    assert sizes == {"64", "128", "256"}


def test_a_signal_ends_it_with_the_table_of_what_is_there(tmp_path: Path) -> None:
    text = LOAD.replace("requests = 3", "duration = 120") + SERVER + VARY
    process = start(tmp_path, matrix(tmp_path, text), "--out", "here")
    log = tmp_path / "here" / "logs"
    deadline_s = time.monotonic() + WITHIN_S
    while not list(log.glob("*.load.log")) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    children = descendants_of(process.pid)
    assert children
    started_s = time.monotonic()
    os.kill(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=WITHIN_S)
    assert time.monotonic() - started_s < END_S
    assert (process.returncode, stderr) == (1, "")
    assert stdout.splitlines()[-1] == (
        "SWEEP: FAIL, 0 cells, 0 of 3 runs: interrupted: the same command goes on (exit 1)"
    )
    assert all_gone(children)
    assert not list((tmp_path / "here" / "records").iterdir())


def test_what_is_not_proven_is_the_exit_code(tmp_path: Path) -> None:
    path = matrix(tmp_path, LOAD)
    server = "serve --fault flip_byte --l1-size-gb 0.1"
    process = start(tmp_path, path, "--server-cmd", server)
    stdout, stderr = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, stderr) == (1, "")
    assert "NOT PROVEN  all, repetition 1: record " in stdout
    assert " is not proven: verdict invalid" in stdout
    assert "1 not proven" in stdout.splitlines()[-1]


def test_a_server_that_does_not_start(tmp_path: Path) -> None:
    path = matrix(tmp_path, LOAD)
    process = start(tmp_path, path, "--server-cmd", "serve --fault nonsense")
    stdout, stderr = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, stderr) == (1, "")
    assert "the server ended before it was ready, exit code 2; it said: bench-server: " in stdout


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("x = 1", (), "'x': not a part of a matrix"),
        ("x", (), "is not TOML"),
        (LOAD, (), "no server: give --server-cmd"),
        (LOAD + SERVER, (), "the server's command has {chunk_size}, and neither [vary] nor"),
        (LOAD, ("--server-cmd", "serve {x}"), "the server's command has {x}, and"),
        (LOAD, ("--server-cmd", "/nowhere/lmcache {rpc_port}"), "there is no command /nowhere/lm"),
        (LOAD, ("--server-cmd", "lmcache server --port 5"), "has no {rpc_port}"),
        (LOAD, ("--server-cmd", "serve", "--slo", "fast"), "--slo 'fast': expected a figure"),
        (LOAD, ("--server-cmd", "serve", "--repetitions", "0"), "0 is out of range"),
        (LOAD, ("--server-cmd", "serve", "--max-rate", "nan"), "'nan' is not a decimal number"),
        (LOAD, ("--server-cmd", "serve", "--out", "/dev/null/x"), "--out /dev/null/x: Not a dir"),
        (LOAD.replace("requests = 3", ""), ("--server-cmd", "serve"), "it has no end"),
        (
            LOAD + '[vary]\nworkload = ["unique", "nonsense"]',
            ("--server-cmd", "serve"),
            "cell workload=nonsense: ",
        ),
        (LOAD + "[vary]\nrate = [5, 0]", ("--server-cmd", "serve"), "cell rate=0: "),
        (
            LOAD + "[vary]\nrate = [5, 6]",
            ("--server-cmd", "serve", "--slo", "store.p50<1s"),
            "cell rate=5: --slo searches the rate",
        ),
        (LOAD + '[server]\nrpc-url = "nonsense://x"', (), "cell all: "),
        (LOAD + "[vary]\ncluster = [5]", ("--server-cmd", "serve"), "neither an option of bench"),
    ],
)
def test_wrong_usage_starts_nothing(
    text: str,
    options: tuple[str, ...],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_one_line(invoke("sweep", matrix(tmp_path, text), *options), 2, expected)
    assert [path.name for path in tmp_path.iterdir()] == ["matrix.toml"]


def test_no_matrix() -> None:
    assert_one_line(invoke("sweep"), 2, "a sweep needs its matrix: bench-server sweep MATRIX.toml")
    assert_one_line(invoke("sweep", "/nowhere/x.toml"), 2, "/nowhere/x.toml: No such file")


def test_another_matrix_in_the_same_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "matrix.sweep").mkdir()
    (tmp_path / "matrix.sweep" / "manifest.json").write_text('{"matrix": "other"}')
    assert_one_line(invoke("sweep", matrix(tmp_path)), 2, "--out matrix.sweep holds another sweep")


def test_it_is_a_command() -> None:
    assert "sweep" in cli.commands

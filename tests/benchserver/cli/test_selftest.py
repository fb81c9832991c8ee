"""The command itself, with real servers and benches: a few faults, and a clean end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchserver.embedded import own_environment
from tests.benchserver.cli.commandline import assert_one_line, invoke
from tests.mitm.forked import ROOT
from tests.mitm.memory import SHM_DIR

WITHIN_S = 100.0
END_S = 5.0
"""Users are promised three seconds; this machine may be busy."""

COMMAND = [sys.executable, "-m", "benchserver", "selftest"]


def start(*options: str, temporary: Path | None = None) -> subprocess.Popen[str]:
    folder = {} if temporary is None else {"TMPDIR": str(temporary)}
    return subprocess.Popen(
        [*COMMAND, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**own_environment(), **folder},
        start_new_session=True,
    )


def children_of(pid: int) -> list[int]:
    """Return the living children of a process, by /proc."""
    found: list[int] = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue  # it ended meanwhile
            if int(parent) == pid and state != "Z":
                found.append(int(path.name))
    return found


def pools_of(pid: int) -> list[str]:
    return [path.name for path in SHM_DIR.iterdir() if f"selftest{pid}-" in path.name]


def test_two_faults(tmp_path: Path) -> None:
    """One over all transports, and one that harms nothing unless it is long."""
    report = tmp_path / "report.json"
    names = ("flip_byte", "slow_prefetch")
    only = [word for name in names for word in ("--only", name)]
    process = start(*only, "--json", str(report))
    stdout, stderr = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0, stdout + stderr
    assert stderr == ""
    document = json.loads(report.read_bytes())
    assert document["ok"]
    assert {run["fault"] for run in document["runs"]} == set(names)
    assert {run["transport"] for run in document["runs"]} == {"handle", "shm", "inline"}
    for run in document["runs"]:
        assert run["exit"] == run["expected_exit"]
        assert bool(run["caught_by"]) is bool(run["expected_checks"])
    lines = stdout.splitlines()
    assert lines[-1].startswith("SELFTEST: PASS, 2 faults in ")
    assert len(lines) == len(document["runs"]) + 2
    assert not pools_of(process.pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_every_child(number: signal.Signals, tmp_path: Path) -> None:
    temporary, report = tmp_path / "temporary", tmp_path / "report.json"
    temporary.mkdir()
    report.write_text('{"ok": true}')
    only = ("--only", "stuck_prefetch", "--only", "swap_chunks")
    process = start(*only, "--jobs", "3", "--json", str(report), temporary=temporary)
    deadline = time.monotonic() + WITHIN_S
    while len(children_of(process.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    children = children_of(process.pid)
    assert children
    started = time.monotonic()
    os.kill(process.pid, number)
    stdout, stderr = process.communicate(timeout=WITHIN_S)
    assert time.monotonic() - started < END_S
    assert process.returncode == 1
    assert "SELFTEST: interrupted, nothing is proven (exit 1)" in stdout
    assert "Traceback" not in stdout + stderr
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert not pools_of(process.pid)
    assert not list(temporary.iterdir())
    document = json.loads(report.read_bytes())  # that of an earlier run would say that all is well
    assert (document["ok"], document["trouble"]) == (False, "interrupted, nothing is proven")


def test_a_report_knows_of_lines_that_could_not_be_written(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [*COMMAND, "--only", "digest_500", "--json", str(report)]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=own_environment(),
            timeout=WITHIN_S,
            check=False,
        )
    assert ended.returncode == 1
    said = "cannot write to standard output: No space left on device"
    assert said in ended.stderr
    document = json.loads(report.read_bytes())
    assert (document["ok"], document["trouble"]) == (False, said)
    assert document["runs"]


def test_closed_output_is_no_traceback() -> None:
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, "--only", "digest_500"]
    ended = subprocess.run(
        shell,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=own_environment(),
        timeout=WITHIN_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("options", "code", "expected"),
    [
        (("--only", "nonsense"), 2, "--only 'nonsense': no such fault; known: none, delay, "),
        (("--jobs", "0"), 2, "0 is out of range"),
        (("--mode", "tpu"), 2, "'tpu' is not one of 'gpu', 'cpu'"),
        (("--json", "/nowhere/x"), 2, "--json /nowhere/x: not a file in an existing directory"),
    ],
)
def test_wrong_usage(options: tuple[str, ...], code: int, expected: str) -> None:
    assert_one_line(invoke("selftest", *options), code, expected)


def test_the_list() -> None:
    listed = invoke("selftest", "--list", "--only", "crash")
    assert listed.exit_code == 0
    assert "crash:STORE [handle]" in listed.stdout
    assert "exit 1, by run, store" in listed.stdout

"""The entry point: a signal while it still loads its modules ends the process in one line."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchserver.errors import BEFORE

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 30.0

PROGRAM = """
import signal, sys, time
from benchserver.__main__ import main

class Slow:
    "Stands at the door of a module, says so, and lets nobody in."
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, flush=True)
            time.sleep(60)

if sys.argv[2:] == ["nohup"]:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
sys.meta_path.insert(0, Slow())
main()
"""


def stopped_at(module: str, *words: str) -> subprocess.Popen[str]:
    """Return a process that stands still while it imports a module.

    It says first whether SIGHUP is ignored.
    """
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, module, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


@pytest.mark.parametrize("module", ["benchserver.ending", "benchserver.cli.main"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_the_imports_is_one_line(module: str, number: signal.Signals) -> None:
    with stopped_at(module) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "False\n"
        process.send_signal(number)
        said = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, *said) == (1, "", f"bench-server: error: {BEFORE}\n")


def test_what_nohup_ignores_stays_ignored() -> None:
    with stopped_at("benchserver.cli.main", "nohup") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        process.kill()


def test_it_is_the_command() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "benchserver", "--version"],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        cwd=ROOT,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("bench-server ")

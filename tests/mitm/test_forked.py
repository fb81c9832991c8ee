"""A forked command is what the same command is, started as users start it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from benchserver.embedded import own_environment
from tests.mitm.bench import processes_of_session
from tests.mitm.forked import ROOT, start
from tests.mitm.forkedserver import forked_server

WITHIN_S = 30.0


@pytest.mark.parametrize("arguments", [("--help",), ("ping", "--end", "x"), ("none",)])
def test_it_says_and_ends_what_a_new_process_does(arguments: tuple[str, ...]) -> None:
    variables = own_environment() | {"COLUMNS": "60"}
    new = subprocess.run(
        [sys.executable, "-m", "benchserver", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=variables,
        check=False,
        timeout=WITHIN_S,
    )
    forked = start(*arguments, variables=variables, stderr=subprocess.PIPE)
    assert forked.communicate(WITHIN_S) == (new.stdout, new.stderr)
    assert forked.returncode == forked.poll() == forked.wait() == new.returncode


def test_a_server_runs_in_a_session_of_its_own_until_it_is_told_to_end() -> None:
    with forked_server() as server:
        assert server.process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(0.01)
        assert processes_of_session(server.process.pid) == [server.process.pid]
    assert server.process.returncode == 0


def test_a_signal_is_the_exit_code() -> None:
    with forked_server() as server:
        server.kill()
        assert server.process.returncode == -signal.SIGKILL
        server.process.send_signal(signal.SIGTERM)  # to nobody
    assert not processes_of_session(server.process.pid)

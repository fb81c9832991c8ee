"""Runs in a shell on a terminal, as a person sees them."""

from __future__ import annotations

import fcntl
import os
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchserver.embedded import own_environment
from tests.mitm.forked import ROOT
from tests.mitm.forkedserver import forked_server
from tests.mitm.running import Urls
from tests.terminal import Terminal

_WITHIN_S = 60.0
_SHELL = ("bash", "--norc", "--noprofile", "--noediting", "-i")


class Shell:
    """An interactive shell with job control on a terminal."""

    def __init__(self, columns: int, rows: int) -> None:
        self.terminal = Terminal(columns, rows)
        self.descriptor, other = os.openpty()
        # Who leads a session, and opens a terminal that nobody has, has it from then on.
        self.process = subprocess.Popen(
            ["sh", "-c", f'exec {shlex.join(_SHELL)} <"$0" >"$0" 2>&1', os.ttyname(other)],
            cwd=ROOT,
            env={**own_environment(), "PS1": "$ ", "TERM": "xterm"},
            start_new_session=True,
        )
        self.resize(columns, rows)
        self._other = other

    def close(self) -> None:
        """Hang up: the jobs of the shell hear of it, too."""
        os.close(self.descriptor)
        os.close(self._other)
        self.process.send_signal(signal.SIGHUP)
        self.process.send_signal(signal.SIGCONT)
        self.process.wait()

    def resize(self, columns: int, rows: int) -> None:
        # What was written for the old size is shown in it, as far as that can be known.
        while select.select([self.descriptor], [], [], 0)[0]:
            self.terminal.feed(os.read(self.descriptor, 1 << 16))
        self.terminal.resize(columns, rows)
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, size)

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def ask(self) -> None:
        """Send SIGUSR1 to the job that has the terminal, unless that is Python alone yet."""
        job = os.tcgetpgrp(self.descriptor)
        if job != self.process.pid and _answers(job):
            os.kill(job, signal.SIGUSR1)

    def until(self, what: str, seen: Callable[[list[str]], bool], *, asking: bool = False) -> None:
        """Read until the screen shows it; `asking` what goes on, all the time."""
        deadline_s, asked_s = time.monotonic() + _WITHIN_S, 0.0
        while not seen(self.terminal.text):
            if time.monotonic() > deadline_s:
                shown = "\n".join(self.terminal.everything)
                raise AssertionError(f"no {what} within {_WITHIN_S} s:\n{shown}")
            if asking and time.monotonic() - asked_s > 0.1:
                asked_s = time.monotonic()
                self.ask()
            if select.select([self.descriptor], [], [], 0.02)[0]:
                self.terminal.feed(os.read(self.descriptor, 1 << 16))


@pytest.fixture
def shell() -> Iterator[Shell]:
    made = Shell(100, 40)
    try:
        yield made
    finally:
        made.close()


def _answers(pid: int) -> bool:
    """Tell whether a process ignores SIGUSR1, or handles it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return False
    masks = [line.split()[1] for line in lines if line.startswith(("SigIgn:", "SigCgt:"))]
    return any(int(mask, 16) & 1 << (signal.SIGUSR1 - 1) for mask in masks)


def has(text: str) -> Callable[[list[str]], bool]:
    return lambda rows: any(text in row for row in rows)


@pytest.fixture(scope="module")
def server() -> Iterator[Urls]:
    with forked_server() as running:
        yield running.urls


def test_a_run_in_a_window_that_changes_stopped_and_ended_by_keys(
    shell: Shell, server: Urls
) -> None:
    words = [sys.executable, "-m", "benchserver", "--mode", "cpu", "--interval", "0.2"]
    words += ["--rpc-url", server.rpc_url, "--url", server.http_url]
    words += ["--kvcache-shape-spec", "(2,128,16,2,8):float16:2"]
    terminal = shell.terminal
    shell.until("prompt", has("$"))
    shell.type(shlex.join(words) + "\n")
    shell.until("view", has("── running ──"), asking=True)
    assert has("no run is under way")(terminal.everything)
    shell.until("figures", lambda rows: any(row.startswith("RETRIEVE ") for row in rows))
    shell.resize(20, 5)
    shell.until("narrow view", lambda rows: any(row.endswith(" sequences/s") for row in rows))
    assert terminal.cursor[0] < 2
    shell.resize(120, 50)
    shell.until("wide view", lambda rows: any(row.startswith("visibility lag") for row in rows))

    shell.ask()
    shell.until("summary", has("Verdict so far: nothing wrong so far"))
    shell.until("view below it", has("── running ──"))

    shell.type("\x1a")
    shell.until("stop", lambda rows: has("Stopped")(rows) and rows[terminal.cursor[0]] == "$")
    # The shell stands where the view stood, of which nothing is left.
    assert not any(terminal.text[terminal.cursor[0] + 1 :])
    shell.type("fg\n")
    shell.until("view", has("── running ──"))

    shell.type("\x03")
    shell.until("prompt", lambda rows: rows[terminal.cursor[0]] == "$", asking=True)
    shell.type("echo CODE=$?\n")
    shell.until("exit code", has("CODE=0"))
    assert not has("── ")(terminal.text)
    assert has("RESULT: PASS")(terminal.text)
    assert terminal.shows_cursor
    assert terminal.wraps
    assert not terminal.other_screen
